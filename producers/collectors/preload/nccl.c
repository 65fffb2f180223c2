/* The calls of NCCL: who is a member of which communicator, and what is called on it, with its arguments as passed.
 * Nothing of what buffers hold is looked at. */
#define _GNU_SOURCE
#include "members.h"

typedef struct CUstream_st *cudaStream_t;
typedef struct { char internal[128]; } ncclUniqueId;

enum { NO_COLOR = -1 };

/* In the order of schemas.comm_ops.OPS. */
enum op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, BARRIER, SEND, RECV };

#define NONE 255 /* no reduction */

/* The function that a hook stands before. */
#define REAL(name)                                                                                  \
    static _Atomic(void *) found_##name;                                                            \
    void *address_##name = atomic_load_explicit(&found_##name, memory_order_acquire);               \
    if (!address_##name) {                                                                          \
        address_##name = real_symbol(#name, nccl_libraries, (void *)name);                               \
        atomic_store_explicit(&found_##name, address_##name, memory_order_release);                 \
    }                                                                                               \
    if (!address_##name)                                                                            \
        return SYSTEM_ERROR;                                                                        \
    __typeof__(&name) real = (__typeof__(&name))address_##name

/* What a call makes of other calls, as ncclBcast does, is not logged again. */
static __thread int inside;
#define PASSED(...)                                     \
    __extension__({                                     \
        inside++;                                       \
        ncclResult_t passed_result = real(__VA_ARGS__); \
        inside--;                                       \
        passed_result;                                  \
    })

/* --- groups, each of the thread that opened it --- */

#define PENDING 256

static _Atomic int64_t groups;
static __thread struct {
    int depth, calls, pending;
    int64_t ordinal, start_ns;
    struct { ncclComm_t *communicator; uint64_t hash; int rank, size; } made[PENDING];
} group;

/* A communicator that is being made: it may only be looked at when the group is closed. */
static void made(ncclComm_t *communicator, uint64_t hash, int rank, int size)
{
    if (!group.depth)
        member_add(*communicator, hash, rank, size);
    else if (group.pending < PENDING) {
        group.made[group.pending].communicator = communicator;
        group.made[group.pending].hash = hash;
        group.made[group.pending].rank = rank;
        group.made[group.pending++].size = size;
    }
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    REAL(ncclGroupStart);
    if (group.depth++ == 0) {
        group.calls = group.pending = 0;
        group.start_ns = now_ns();
        group.ordinal = atomic_fetch_add_explicit(&groups, 1, memory_order_relaxed) + 1;
    }
    return real();
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    REAL(ncclGroupEnd);
    bool outermost = group.depth > 0 && --group.depth == 0;
    if (outermost && group.calls) {
        struct record record = {.at_ns = now_ns(), .kind = GROUP_END};
        record.call = (struct call){.group = group.ordinal, .group_start_ns = group.start_ns, .peer = -1};
        ring_append(&record);
    }
    ncclResult_t result = real();
    for (int i = 0; outermost && (result == SUCCESS || result == IN_PROGRESS) && i < group.pending; i++)
        member_add(*group.made[i].communicator, group.made[i].hash, group.made[i].rank, group.made[i].size);
    return result;
}

/* --- communicators are made and go --- */

/* All members come to the same. */
static uint64_t hash_of(const char *bytes, size_t count)
{
    uint64_t hash = 5381;
    for (size_t i = 0; i < count; i++)
        hash = hash * 33 ^ (uint64_t)(int64_t)bytes[i];
    return hash;
}

static ncclResult_t noted(ncclResult_t result, ncclComm_t *communicator, const ncclUniqueId *id, int rank, int size)
{
    if (result == SUCCESS || result == IN_PROGRESS)
        made(communicator, hash_of(id->internal, sizeof id->internal), rank, size);
    return result;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int size, ncclUniqueId id, int rank)
{
    REAL(ncclCommInitRank);
    return noted(real(communicator, size, id, rank), communicator, &id, rank, size);
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *communicator, int size, ncclUniqueId id, int rank, void *config)
{
    REAL(ncclCommInitRankConfig);
    return noted(real(communicator, size, id, rank, config), communicator, &id, rank, size);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *communicator, int size, int rank, int count, ncclUniqueId *ids,
                                             void *config)
{
    REAL(ncclCommInitRankScalable);
    return noted(real(communicator, size, rank, count, ids, config), communicator, ids, rank, size);
}

/* All members of the parent split it equally often, and those of a part with one colour. */
EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *communicator, void *config)
{
    REAL(ncclCommSplit);
    ncclResult_t result = real(parent, color, key, communicator, config);
    struct member *member = member_of(parent);
    if (member && (result == SUCCESS || result == IN_PROGRESS)) {
        int64_t from[] = {(int64_t)member->hash, atomic_fetch_add(&member->splits, 1), color};
        if (color != NO_COLOR)
            made(communicator, hash_of((const char *)from, sizeof from), -1, -1);
    }
    return result;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
    REAL(ncclCommDestroy);
    member_gone(communicator);
    return real(communicator);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
    REAL(ncclCommAbort);
    member_gone(communicator);
    return real(communicator);
}

/* --- calls --- */

static void called(enum op op, ncclComm_t communicator, size_t count, int dtype, int reduce_op, int peer,
                   cudaStream_t stream)
{
    if (inside)
        return;
    struct member *member = member_of(communicator);
    if (!member || !member_placed(member)) {
        ring_dropped();
        return;
    }
    struct record record = {
        .at_ns = now_ns(),
        .kind = CALL,
        .op = (uint8_t)op,
        .dtype = (uint8_t)dtype,
        .reduce_op = (uint8_t)reduce_op,
        .communicator_rank = atomic_load_explicit(&member->rank, memory_order_relaxed),
    };
    record.call = (struct call){
        .communicator = member->hash,
        .seq = atomic_fetch_add_explicit(&member->calls, 1, memory_order_relaxed),
        .count = (int64_t)count,
        .stream = (uintptr_t)stream,
        .peer = peer,
        .size = atomic_load_explicit(&member->size, memory_order_relaxed),
    };
    if (group.depth) {
        group.calls++;
        record.call.group = group.ordinal;
        record.call.group_start_ns = group.start_ns;
    }
    ring_append(&record);
}

/* Reductions that programs made themselves have numbers from 5. */
static int reduction(ncclRedOp_t op)
{
    return op >= 0 && op < 5 ? op : 5;
}

#define BUFFERS const void *from, void *to, size_t count, ncclDataType_t type
#define WHERE ncclComm_t communicator, cudaStream_t stream

EXPORT ncclResult_t ncclAllReduce(BUFFERS, ncclRedOp_t op, WHERE)
{
    REAL(ncclAllReduce);
    called(ALL_REDUCE, communicator, count, type, reduction(op), -1, stream);
    return PASSED(from, to, count, type, op, communicator, stream);
}

EXPORT ncclResult_t ncclAllGather(BUFFERS, WHERE)
{
    REAL(ncclAllGather);
    called(ALL_GATHER, communicator, count, type, NONE, -1, stream);
    return PASSED(from, to, count, type, communicator, stream);
}

EXPORT ncclResult_t ncclReduceScatter(BUFFERS, ncclRedOp_t op, WHERE)
{
    REAL(ncclReduceScatter);
    called(REDUCE_SCATTER, communicator, count, type, reduction(op), -1, stream);
    return PASSED(from, to, count, type, op, communicator, stream);
}

EXPORT ncclResult_t ncclBroadcast(BUFFERS, int root, WHERE)
{
    REAL(ncclBroadcast);
    called(BROADCAST, communicator, count, type, NONE, root, stream);
    return PASSED(from, to, count, type, root, communicator, stream);
}

EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, WHERE)
{
    REAL(ncclBcast);
    called(BROADCAST, communicator, count, type, NONE, root, stream);
    return PASSED(buffer, count, type, root, communicator, stream);
}

EXPORT ncclResult_t ncclReduce(BUFFERS, ncclRedOp_t op, int root, WHERE)
{
    REAL(ncclReduce);
    called(REDUCE, communicator, count, type, reduction(op), root, stream);
    return PASSED(from, to, count, type, op, root, communicator, stream);
}

EXPORT ncclResult_t ncclAlltoAll(BUFFERS, WHERE)
{
    REAL(ncclAlltoAll);
    called(ALL_TO_ALL, communicator, count, type, NONE, -1, stream);
    return PASSED(from, to, count, type, communicator, stream);
}

EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, WHERE)
{
    REAL(ncclSend);
    called(SEND, communicator, count, type, NONE, peer, stream);
    return PASSED(from, count, type, peer, communicator, stream);
}

EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, WHERE)
{
    REAL(ncclRecv);
    called(RECV, communicator, count, type, NONE, peer, stream);
    return PASSED(to, count, type, peer, communicator, stream);
}
