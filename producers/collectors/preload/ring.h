/* What is told of a process, and read by producers/collectors/call_log.py. Calls go to a ring, which is laid out, and
 * in which a record becomes visible, as producers/live/ring.py says, but that any thread appends to one ring. What
 * happens seldom and must be known as long as the process lives, its communicators and queue pairs, goes to a file. */
#ifndef OFFBEAT_RING_H
#define OFFBEAT_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#define MOST_FACTS (1 << 16)

enum kind {
    MEMBER = 1,    /* the process has become a member of a communicator */
    CALL = 2,      /* of a collective, a send or a recv */
    GROUP_END = 3, /* the outermost group was closed */
    CONNECTED = 4, /* a queue pair has got its other end */
    CLOSED = 5,    /* a queue pair has none any more */
};

struct call {
    uint64_t communicator;
    int64_t seq;
    int64_t count;
    uint64_t stream;
    int64_t group;          /* ordinal of the outermost group, from 1; 0: none */
    int64_t group_start_ns; /* when it was opened */
    int32_t peer;           /* or root, as a place in the communicator; -1: none */
    int32_t size;           /* members */
};

struct pair {
    uint8_t gid[16];
    uint8_t destination_gid[16];
    uint32_t qpn;
    uint32_t destination_qpn;
    uint8_t by_lid; /* the gids hold local identifiers in their last two bytes */
    char nic[55];
};

struct record {
    int64_t at_ns; /* the host's clock */
    uint8_t kind, op, dtype, reduce_op;
    int32_t communicator_rank;
    union {
        struct call call;
        struct pair pair;
    };
    uint64_t spare;
    _Atomic int64_t number; /* plus one, stored last */
};

_Static_assert(sizeof(struct record) == 128 && offsetof(struct record, number) == 120, "as call_log.py has it");

/* Nanoseconds since the epoch. */
int64_t now_ns(void);

/* Whether anything is logged. The first call opens the ring, which takes system calls: communicators and queue pairs
 * make it, never a collective. */
bool ring_opened(void);

/* Append a call or the end of a group, or count it as dropped where there is no room. Never waits, makes no system call,
 * and does nothing before ring_opened. */
void ring_append(const struct record *record);

/* Append anything else to the file; beyond MOST_FACTS it is counted as dropped. */
void fact_append(const struct record *record);

/* Count what is not told. */
void ring_dropped(void);

/* A function as it would be without this library: of the next object that has it, or of one of the libraries (ending
 * with NULL) where they were loaded apart; never `own`. NULL: there is none. */
void *real_symbol(const char *name, const char *const *libraries, void *own);

#endif
