/* A training process as far as NCCL sees one; what it does is its first argument. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
typedef void *stream_t;

int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, void *);
int ncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *, void *);
int ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, void *);
int ncclCommDestroy(ncclComm_t);
int ncclCommAbort(ncclComm_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclAllGather(const void *, void *, size_t, int, ncclComm_t, stream_t);
int ncclReduceScatter(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclBcast(void *, size_t, int, int, ncclComm_t, stream_t);
int ncclReduce(const void *, void *, size_t, int, int, int, ncclComm_t, stream_t);
int ncclAlltoAll(const void *, void *, size_t, int, ncclComm_t, stream_t);
int ncclSend(const void *, size_t, int, int, ncclComm_t, stream_t);
int ncclRecv(void *, size_t, int, int, ncclComm_t, stream_t);
void *next_of_nccl(void);

static char *const from = (char *)0x1000, *const to = (char *)0x2000;
static const stream_t stream = (stream_t)0x77;
static ncclComm_t world;

static int initialised(int rank, int size, const char *name)
{
    ncclUniqueId id = {{0}};
    strcpy(id.internal, name);
    return ncclCommInitRank(&world, size, id, rank);
}

static int everything(int rank, int size)
{
    int failed = initialised(rank, size, "a world");
    failed += ncclAllReduce(from, to, 1024, 7, 0, world, stream);
    failed += ncclAllGather(from, to, 1, 0, world, stream);
    failed += ncclReduceScatter(from, to, 2, 9, 4, world, stream);
    failed += ncclBroadcast(from, to, 3, 6, size - 1, world, stream);
    failed += ncclBcast(to, 4, 6, 0, world, stream);
    failed += ncclReduce(from, to, 5, 8, 7, 1, world, stream);
    failed += ncclAlltoAll(from, to, 6, 1, world, NULL);
    failed += ncclGroupStart() + ncclGroupStart();
    for (int peer = 0; peer < size; peer++)
        failed += ncclSend(from, 10 + (size_t)peer, 7, peer, world, stream);
    failed += ncclGroupEnd();
    for (int peer = 0; peer < size; peer++)
        failed += ncclRecv(to, 20 + (size_t)peer, 7, peer, world, stream);
    failed += ncclGroupEnd();
    failed += ncclSend(from, 30, 7, 1, world, stream);
    return failed + ncclCommDestroy(world);
}

/* Communicators of all makes. */
static int communicators(int rank, int size)
{
    ncclUniqueId id = {"others"};
    ncclComm_t config, scalable, half, none, later;
    int failed = initialised(rank, size, "a world");
    failed += ncclCommInitRankConfig(&config, size, id, rank, NULL) != 7;
    failed += ncclCommInitRankScalable(&scalable, size, rank, 1, &id, NULL);
    failed += ncclCommSplit(world, rank % 2, 0, &half, NULL);
    failed += ncclCommSplit(world, -1, 0, &none, NULL);
    failed += ncclGroupStart() + (ncclCommSplit(world, rank % 2, 0, &later, NULL) != 7) + ncclGroupEnd();
    ncclComm_t all[] = {world, config, scalable, half, later};
    for (int i = 0; i < 5; i++)
        failed += ncclAllReduce(from, to, (size_t)i, 7, 0, all[i], stream);
    failed += ncclCommAbort(half);
    return failed + ncclAllReduce(from, to, 9, 7, 0, half, stream);
}

static void *many(void *count)
{
    for (intptr_t i = 0; i < (intptr_t)count; i++)
        ncclAllReduce(from, to, (size_t)i, 7, 0, world, stream);
    return NULL;
}

/* More calls than the ring holds, from several threads, while nobody reads. */
static int flood(int rank, int size, intptr_t calls)
{
    pthread_t threads[4];
    int failed = initialised(rank, size, "a world");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, many, (void *)calls);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return failed;
}

/* A child of fork has a rank of its own; both call at once. */
static int forked(int rank, int size)
{
    int failed = initialised(rank, size, "a world"), status = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv("RANK", "9", 1);
        failed += initialised(1, 2, "another world");
        failed += ncclAllReduce(from, to, 99, 7, 0, world, stream);
        exit(failed);
    }
    failed += ncclAllReduce(from, to, 1, 7, 0, world, stream);
    waitpid(child, &status, 0);
    return failed + status;
}

/* What a call takes, in ns. */
static int timed(int rank, int size, int calls)
{
    struct timespec before, after;
    int failed = initialised(rank, size, "a world");
    clock_gettime(CLOCK_MONOTONIC, &before);
    many((void *)(intptr_t)calls);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double ns = (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
    printf("%.1f\n", ns / calls);
    return failed;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    const char *own = getenv("STUB_RANK"), *all = getenv("STUB_SIZE");
    int rank = own ? atoi(own) : 0, size = all ? atoi(all) : 4, number = count > 2 ? atoi(arguments[2]) : 0;
    if (!strcmp(what, "everything"))
        return everything(rank, size);
    if (!strcmp(what, "communicators"))
        return communicators(rank, size);
    if (!strcmp(what, "flood"))
        return flood(rank, size, number);
    if (!strcmp(what, "forked"))
        return forked(rank, size);
    if (!strcmp(what, "timed"))
        return timed(rank, size, number);
    if (!strcmp(what, "nothing"))
        return 0;
    if (!strcmp(what, "next"))
        return next_of_nccl() != NULL;
    return 99;
}
