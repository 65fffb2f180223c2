/* A table that is read without waiting; communicators are made and go seldom, one at a time. */
#define _GNU_SOURCE
#include "members.h"

#include <pthread.h>

const char *const nccl_libraries[] = {"libnccl.so.2", "libnccl.so", NULL};

#define MEMBERS 4096 /* a power of two */

static struct member members[MEMBERS];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static char gone; /* its address stands for a communicator that is no more */

static size_t first_place(const void *communicator)
{
    return (uintptr_t)communicator / 64 * 0x9e3779b97f4a7c15u >> 52;
}

struct member *member_of(ncclComm_t communicator)
{
    for (size_t i = 0, at = first_place(communicator); communicator && i < MEMBERS; i++, at++) {
        struct member *here = &members[at % MEMBERS];
        void *there = atomic_load_explicit(&here->communicator, memory_order_acquire);
        if (there == communicator)
            return here;
        if (!there)
            break;
    }
    return NULL;
}

typedef ncclResult_t asked_of(ncclComm_t communicator, int *value);

static ncclResult_t asked(const char *name, ncclComm_t communicator, int *value)
{
    asked_of *real = (asked_of *)real_symbol(name, nccl_libraries, NULL);
    return real ? real(communicator, value) : SYSTEM_ERROR;
}

/* Tell of a membership, once NCCL knows the place: of a split it does so only when that is complete. */
static void tell(struct member *member)
{
    struct record record = {.at_ns = now_ns(), .kind = MEMBER, .communicator_rank = atomic_load(&member->rank)};
    record.call = (struct call){.communicator = member->hash, .size = atomic_load(&member->size), .peer = -1};
    fact_append(&record);
}

bool member_placed(struct member *member)
{
    if (atomic_load_explicit(&member->rank, memory_order_acquire) >= 0)
        return true;
    int rank = -1, size = -1;
    ncclComm_t communicator = atomic_load(&member->communicator);
    if (asked("ncclCommCount", communicator, &size) || asked("ncclCommUserRank", communicator, &rank) || rank < 0)
        return false;
    atomic_store(&member->size, size);
    int unknown = -1;
    if (atomic_compare_exchange_strong(&member->rank, &unknown, rank))
        tell(member);
    return true;
}

void member_add(ncclComm_t communicator, uint64_t hash, int rank, int size)
{
    if (!communicator || !ring_opened())
        return;
    struct member *free = NULL;
    pthread_mutex_lock(&changing);
    for (size_t i = 0, at = first_place(communicator); !free && i < MEMBERS; i++, at++) {
        void *there = atomic_load(&members[at % MEMBERS].communicator);
        if (!there || there == &gone || there == communicator)
            free = &members[at % MEMBERS];
    }
    if (free) {
        free->hash = hash;
        atomic_store(&free->rank, rank);
        atomic_store(&free->size, size);
        atomic_store(&free->calls, 0);
        atomic_store(&free->splits, 0);
        atomic_store_explicit(&free->communicator, communicator, memory_order_release);
    }
    pthread_mutex_unlock(&changing);
    if (free && rank >= 0)
        tell(free);
}

void member_gone(ncclComm_t communicator)
{
    struct member *member = member_of(communicator);
    if (member)
        atomic_store_explicit(&member->communicator, &gone, memory_order_release);
}
