/* A library with NCCL's interface that moves nothing: it notes what reaches it, and connects one queue pair for each
 * communicator the way NCCL does, through dlopen and dlvsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct ncclComm {
    int rank, size, ready;
    struct ibv_device device;
    struct ibv_context context;
    struct ibv_qp pair;
} *ncclComm_t;

static int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int);
static int (*destroy)(struct ibv_qp *);
static int pairs;

static void note(const char *format, ...)
{
    if (!getenv("STUB_NOTES"))
        return;
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
}

static int result(void)
{
    const char *wanted = getenv("STUB_RESULT");
    return wanted ? atoi(wanted) : 0;
}

static void connect_to(struct ncclComm *comm, uint32_t other)
{
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!verbs)
        return;
    *(void **)&modify = dlvsym(verbs, "ibv_modify_qp", "IBVERBS_1.1");
    *(void **)&destroy = dlvsym(verbs, "ibv_destroy_qp", "IBVERBS_1.1");
    strcpy(comm->device.name, "mlx5_3");
    comm->context.device = &comm->device;
    comm->pair.context = &comm->context;
    comm->pair.qp_num = 0x100 * (uint32_t)(comm->rank + 1) + (uint32_t)pairs++;
    struct ibv_qp_attr to = {.qp_state = 1};
    modify(&comm->pair, &to, IBV_QP_STATE);
    to.qp_state = IBV_QPS_RTR;
    to.dest_qp_num = other;
    to.ah_attr.is_global = getenv("STUB_LID") == NULL;
    to.ah_attr.dlid = 0x2f;
    to.ah_attr.port_num = 1;
    to.ah_attr.grh.sgid_index = 3;
    memcpy(to.ah_attr.grh.dgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x02", 16);
    modify(&comm->pair, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN);
    to.qp_state = 3;
    modify(&comm->pair, &to, IBV_QP_STATE);
}

static struct ncclComm *made(int size, int rank, int ready)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->size = size;
    comm->ready = ready;
    connect_to(comm, 0x100 * (uint32_t)((rank + 1) % size + 1));
    return comm;
}

int ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    note("init %d of %d %s", rank, size, id.internal);
    *comm = made(size, rank, 1);
    return result();
}

int ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, void *config)
{
    (void)config;
    note("config %d of %d %s", rank, size, id.internal);
    *comm = made(size, rank, 1);
    return 7;
}

int ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int count, ncclUniqueId *ids, void *config)
{
    (void)config;
    note("scalable %d of %d %d %s", rank, size, count, ids->internal);
    *comm = made(size, rank, 1);
    return result();
}

/* As a library looks up what it stands before: there is none behind this one. */
void *next_of_nccl(void)
{
    return dlvsym(RTLD_NEXT, "next_of_nccl", "NCCL_1");
}

static ncclComm_t *pending;
static int depth;

int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made_of, void *config)
{
    (void)config;
    note("split %d %d", color, key);
    *made_of = color < 0 ? NULL : made(comm->size / 2, comm->rank / 2, depth == 0);
    pending = depth ? made_of : NULL;
    return depth ? 7 : result();
}

int ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return comm->ready ? 0 : 4;
}

int ncclCommCount(ncclComm_t comm, int *size)
{
    *size = comm->size;
    return comm->ready ? 0 : 4;
}

int ncclCommDestroy(ncclComm_t comm)
{
    note("destroy");
    if (comm->context.device)
        destroy(&comm->pair);
    return result();
}

int ncclCommAbort(ncclComm_t comm)
{
    note("abort %d", comm->rank);
    return result();
}

int ncclGroupStart(void)
{
    depth++;
    note("start");
    return result();
}

int ncclGroupEnd(void)
{
    if (--depth == 0 && pending) {
        (*pending)->ready = 1;
        pending = NULL;
    }
    note("end");
    return result();
}

#define BUFFERS const void *from, void *to, size_t count, int type
#define OF ncclComm_t comm, void *stream

#define NOTED(name) note(name " %p %p %zu %d %d %p", from, to, count, type, comm->rank, stream)

int ncclAllReduce(BUFFERS, int op, OF) { NOTED("all_reduce"); note("op %d", op); return result(); }
int ncclAllGather(BUFFERS, OF) { NOTED("all_gather"); return result(); }
int ncclReduceScatter(BUFFERS, int op, OF) { NOTED("reduce_scatter"); note("op %d", op); return result(); }
int ncclBroadcast(BUFFERS, int root, OF) { NOTED("broadcast"); note("root %d", root); return result(); }
int ncclBcast(void *to, size_t count, int type, int root, OF) { return ncclBroadcast(to, to, count, type, root, comm, stream); }
int ncclReduce(BUFFERS, int op, int root, OF) { NOTED("reduce"); note("op %d root %d", op, root); return result(); }
int ncclAlltoAll(BUFFERS, OF) { NOTED("all_to_all"); return result(); }

int ncclSend(const void *from, size_t count, int type, int peer, OF)
{
    note("send %p %zu %d to %d of %d %p", from, count, type, peer, comm->rank, stream);
    return result();
}

int ncclRecv(void *to, size_t count, int type, int peer, OF)
{
    note("recv %p %zu %d from %d of %d %p", to, count, type, peer, comm->rank, stream);
    return result();
}
