/* The communicators that this process is a member of. */
#ifndef OFFBEAT_MEMBERS_H
#define OFFBEAT_MEMBERS_H

#include "ring.h"

/* Types are NCCL's, as far as they are passed on here. */
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;

enum { SUCCESS = 0, SYSTEM_ERROR = 2, IN_PROGRESS = 7 };

extern const char *const nccl_libraries[];

struct member {
    _Atomic(void *) communicator; /* NULL: nothing was ever here */
    uint64_t hash;               /* what all members call it */
    _Atomic int rank, size; /* -1: not known yet */
    _Atomic int64_t calls, splits;
};

/* NULL: the making of the communicator was not seen. */
struct member *member_of(ncclComm_t communicator);

/* Note a communicator, and tell of it; without its rank and size NCCL is asked when it is first used. */
void member_add(ncclComm_t communicator, uint64_t hash, int rank, int size);

/* Its address may be another's from now on. */
void member_gone(ncclComm_t communicator);

/* Whether the process' place in it is known by now. */
bool member_placed(struct member *member);

#endif
