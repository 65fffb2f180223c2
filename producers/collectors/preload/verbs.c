/* Queue pairs, as they get their other end and lose it. NCCL looks libibverbs up with dlvsym, which no preloaded
 * function answers: hence that is stood before as well. */
#define _GNU_SOURCE
#include "ring.h"
#include "verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const libraries[] = {"libibverbs.so.1", NULL};

typedef int modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask);
typedef int destroy_qp(struct ibv_qp *pair);

EXPORT modify_qp ibv_modify_qp;
EXPORT destroy_qp ibv_destroy_qp;

static _Atomic(void *) real_modify, real_destroy;

static void *real(_Atomic(void *) *known, const char *name, void *own)
{
    void *found = atomic_load_explicit(known, memory_order_acquire);
    if (!found) {
        found = real_symbol(name, libraries, own);
        atomic_store_explicit(known, found, memory_order_release);
    }
    return found;
}

/* A line of a port's folder in sysfs; empty where there is none. */
static void attribute(char *line, int size, const struct ibv_qp *pair, unsigned port, const char *name)
{
    const char *root = getenv("OFFBEAT_COLLECT__INFINIBAND");
    char path[600];
    *line = 0;
    snprintf(path, sizeof path, "%s/%.64s/ports/%u/%s", root && *root ? root : "/sys/class/infiniband",
             pair->context->device->name, port, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(line, size, file))
        *line = 0;
    fclose(file);
}

/* A local identifier in the place of an address, for networks without global ones. */
static void put_lid(uint8_t *gid, unsigned lid)
{
    gid[14] = (uint8_t)(lid >> 8);
    gid[15] = (uint8_t)lid;
}

static void addresses(struct pair *told, const struct ibv_qp *pair, const struct ibv_ah_attr *way)
{
    char line[64], name[32];
    unsigned part[8];
    told->by_lid = !way->is_global;
    if (told->by_lid) {
        put_lid(told->destination_gid, way->dlid);
        attribute(line, sizeof line, pair, way->port_num, "lid");
        put_lid(told->gid, (unsigned)strtoul(line, NULL, 16));
        return;
    }
    memcpy(told->destination_gid, way->grh.dgid, 16);
    snprintf(name, sizeof name, "gids/%u", way->grh.sgid_index);
    attribute(line, sizeof line, pair, way->port_num, name);
    if (sscanf(line, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3], &part[4], &part[5],
               &part[6], &part[7]) == 8)
        for (int i = 0; i < 8; i++) {
            told->gid[2 * i] = (uint8_t)(part[i] >> 8);
            told->gid[2 * i + 1] = (uint8_t)part[i];
        }
}

static void tell(enum kind kind, const struct ibv_qp *pair, uint32_t qpn, const char *nic,
                 const struct ibv_qp_attr *attributes, int mask)
{
    int saved = errno;
    struct record record = {.at_ns = now_ns(), .kind = (uint8_t)kind, .communicator_rank = -1};
    record.pair.qpn = qpn;
    snprintf(record.pair.nic, sizeof record.pair.nic, "%.*s", (int)sizeof record.pair.nic - 1, nic);
    if (kind == CONNECTED) {
        record.pair.destination_qpn = attributes->dest_qp_num;
        if (mask & IBV_QP_AV)
            addresses(&record.pair, pair, &attributes->ah_attr);
    }
    fact_append(&record);
    errno = saved;
}

EXPORT int ibv_modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
    modify_qp *pass = (modify_qp *)real(&real_modify, "ibv_modify_qp", (void *)ibv_modify_qp);
    if (!pass)
        return ENOSYS;
    int result = pass(pair, attributes, mask);
    if (result || !(mask & IBV_QP_STATE) || !ring_opened())
        return result;
    if (attributes->qp_state == IBV_QPS_RTR && mask & IBV_QP_DEST_QPN)
        tell(CONNECTED, pair, pair->qp_num, pair->context->device->name, attributes, mask);
    else if (attributes->qp_state == IBV_QPS_RESET || attributes->qp_state == IBV_QPS_ERR)
        tell(CLOSED, pair, pair->qp_num, pair->context->device->name, NULL, 0);
    return result;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *pair)
{
    destroy_qp *pass = (destroy_qp *)real(&real_destroy, "ibv_destroy_qp", (void *)ibv_destroy_qp);
    if (!pass)
        return ENOSYS;
    uint32_t qpn = pair->qp_num;
    char nic[64];
    memcpy(nic, pair->context->device->name, sizeof nic);
    nic[sizeof nic - 1] = 0;
    int result = pass(pair);
    if (!result && ring_opened())
        tell(CLOSED, NULL, qpn, nic, NULL, 0);
    return result;
}

typedef void *look_up(void *restrict handle, const char *restrict name, const char *restrict version);

/* RTLD_NEXT means the object after the caller: the real function must see the caller's return address, which a tail
 * call leaves as it is. */
EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
    static _Atomic(void *) known;
    look_up *pass = (look_up *)atomic_load_explicit(&known, memory_order_acquire);
    if (!pass) {
        pass = (look_up *)dlsym(RTLD_NEXT, "dlvsym");
        atomic_store_explicit(&known, (void *)pass, memory_order_release);
    }
    if (handle == RTLD_NEXT || (strcmp(name, "ibv_modify_qp") != 0 && strcmp(name, "ibv_destroy_qp") != 0))
        return pass(handle, name, version);
    void *found = pass(handle, name, version);
    bool modifies = strcmp(name, "ibv_modify_qp") == 0;
    void *own = modifies ? (void *)ibv_modify_qp : (void *)ibv_destroy_qp;
    if (!found || found == own)
        return found;
    atomic_store_explicit(modifies ? &real_modify : &real_destroy, found, memory_order_release);
    return own;
}
