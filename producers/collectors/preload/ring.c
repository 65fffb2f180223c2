/* Where records go. A process has a folder as offbeat/operator_log.py makes it: who it is in registration.json, that
 * it lives by a lock on `alive`, a ring, and a file of facts. It appears under its name once all of that is there. */
#define _GNU_SOURCE
#include "ring.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEADER_BYTES 4096
#define CAPACITY (1 << 15)
#define RING_BYTES (HEADER_BYTES + CAPACITY * sizeof(struct record))

struct header {
    char magic[8];
    int64_t record_bytes, capacity;
    _Alignas(64) _Atomic int64_t dropped;
    _Alignas(64) _Atomic int64_t tail; /* the next number that the reader needs */
    _Alignas(64) _Atomic int64_t head; /* the next number that a writer takes */
};

enum state { UNOPENED, OPEN, OFF };

static _Atomic int state = UNOPENED;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct header *ring;
static int alive = -1, facts = -1;
static _Atomic int facts_told;

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void ring_dropped(void)
{
    if (atomic_load_explicit(&state, memory_order_acquire) == OPEN)
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
}

void ring_append(const struct record *record)
{
    if (atomic_load_explicit(&state, memory_order_acquire) != OPEN)
        return;
    int64_t number = atomic_load_explicit(&ring->head, memory_order_relaxed);
    do {
        if (number - atomic_load_explicit(&ring->tail, memory_order_acquire) >= CAPACITY) {
            ring_dropped();
            return;
        }
    } while (!atomic_compare_exchange_weak_explicit(&ring->head, &number, number + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    struct record *slot = (struct record *)((char *)ring + HEADER_BYTES) + number % CAPACITY;
    memcpy(slot, record, offsetof(struct record, number));
    atomic_store_explicit(&slot->number, number + 1, memory_order_release);
}

void fact_append(const struct record *record)
{
    if (atomic_load_explicit(&state, memory_order_acquire) != OPEN)
        return;
    if (atomic_fetch_add(&facts_told, 1) >= MOST_FACTS || write(facts, record, sizeof *record) != sizeof *record)
        ring_dropped();
}

/* A child of fork shares its parent's memory and lock, and has a rank of its own, if any. */
static void forget(void)
{
    pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    opening = unlocked;
    if (alive >= 0)
        close(alive);
    if (facts >= 0)
        close(facts);
    alive = facts = -1;
    atomic_store(&facts_told, 0);
    if (ring)
        munmap(ring, RING_BYTES);
    ring = NULL;
    atomic_store(&state, UNOPENED);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget);
}

static const char *first_of(const char *const *variables)
{
    const char *value = NULL;
    for (; !value && *variables; variables++) {
        value = getenv(*variables);
        if (value && !*value)
            value = NULL;
    }
    return value;
}

/* A whole number from 0, or -1. */
static long whole(const char *text)
{
    char *end = NULL;
    errno = 0;
    long value = text ? strtol(text, &end, 10) : -1;
    return !text || errno || *end || value < 0 ? -1 : value;
}

/* Text as a JSON string; what would need an escape becomes a question mark. */
static void quoted(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? '?' : *text, file);
    fputc('"', file);
}

static void field(FILE *file, const char *name, long value)
{
    if (value >= 0)
        fprintf(file, ", \"%s\": %ld", name, value);
}

/* A restart is another run, and so another job. NULL: nobody has named it. */
static const char *job_name(char *buffer, size_t size)
{
    static const char *const own[] = {"OFFBEAT_COLLECT__JOB", NULL}, *const slurm[] = {"SLURM_JOB_ID", NULL};
    const char *name = first_of(own), *torch = getenv("TORCHELASTIC_RUN_ID");
    if (!name && torch && *torch && strcmp(torch, "none") != 0)
        name = torch;
    if (!name && !(name = first_of(slurm)))
        return NULL;
    static const char *const counts[] = {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", NULL};
    long restarts = whole(first_of(counts));
    snprintf(buffer, size, restarts > 0 ? "%s.%ld" : "%s", name, restarts);
    return buffer;
}

static bool registered(const char *path, const char *job, long rank, const char *start)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    static const char *const worlds[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};
    static const char *const locals[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", NULL};
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    fprintf(file, "{\"job\": ");
    quoted(file, job);
    fprintf(file, ", \"rank\": %ld, \"start_id\": \"%s\", \"host\": ", rank, start);
    quoted(file, host);
    field(file, "world", whole(first_of(worlds)));
    field(file, "gpu", whole(first_of(locals)));
    field(file, "started_ns", now_ns());
    fprintf(file, ", \"layout\": {}, \"groups\": []}\n");
    return fclose(file) == 0;
}

static struct header *mapped(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    void *memory = MAP_FAILED;
    /* All of it now: memory that turns out to be missing later would end the process. */
    if ((errno = posix_fallocate(file, 0, RING_BYTES)) == 0)
        memory = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

static const char *inside(char *path, size_t size, const char *folder, const char *name)
{
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* Fill a new folder; what fails is in errno. */
static bool filled(const char *folder, const char *job, long rank, const char *start)
{
    char path[700];
    alive = open(inside(path, sizeof path, folder, "alive"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (alive < 0 || flock(alive, LOCK_EX))
        return false;
    facts = open(inside(path, sizeof path, folder, "facts"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (facts < 0 || !registered(inside(path, sizeof path, folder, "registration.json"), job, rank, start))
        return false;
    ring = mapped(inside(path, sizeof path, folder, "ring-0"));
    if (!ring)
        return false;
    ring->record_bytes = sizeof(struct record);
    ring->capacity = CAPACITY;
    memcpy(ring->magic, "OFFBEATC", 8);
    return true;
}

static void emptied(const char *folder)
{
    static const char *const names[] = {"alive", "facts", "registration.json", "ring-0"};
    char path[700];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(inside(path, sizeof path, folder, names[i]));
    rmdir(folder);
}

/* Make what is missing of a path; what cannot be made shows in what follows. */
static void make_folders(const char *path)
{
    char part[600];
    snprintf(part, sizeof part, "%s", path);
    for (char *end = part + 1; (end = strchr(end, '/')); *end++ = '/') {
        *end = 0;
        mkdir(part, 0777);
    }
    mkdir(part, 0777);
}

/* What keeps the process from being seen, or NULL. */
static const char *opened(void)
{
    static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
    static const char *const folders[] = {"OFFBEAT_COLLECT__CALLS", NULL};
    char buffer[512], made[600], shown[600], start[17];
    long rank = whole(first_of(ranks));
    const char *job = job_name(buffer, sizeof buffer), *root = first_of(folders);
    uint64_t random = 0;
    if (rank < 0)
        return "RANK is not set";
    if (!job)
        return "the job has no name: set OFFBEAT_COLLECT__JOB";
    if (!root)
        root = "/dev/shm/offbeat/.calls";
    if (strlen(root) > 500)
        return "the name that OFFBEAT_COLLECT__CALLS gives is too long";
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return strerror(errno);
    snprintf(start, sizeof start, "%016llx", (unsigned long long)random);
    snprintf(made, sizeof made, "%s/.%ld-%s", root, rank, start);
    snprintf(shown, sizeof shown, "%s/%ld-%s", root, rank, start);
    make_folders(root);
    if (mkdir(made, 0700))
        return strerror(errno);
    if (filled(made, job, rank, start) && !rename(made, shown))
        return NULL;
    const char *why = strerror(errno);
    emptied(made);
    return why;
}

bool ring_opened(void)
{
    if (atomic_load_explicit(&state, memory_order_acquire) == UNOPENED) {
        int saved = errno;
        pthread_mutex_lock(&opening);
        if (atomic_load(&state) == UNOPENED) {
            const char *why = opened();
            if (why)
                fprintf(stderr, "offbeat: the calls of this process are not logged: %s\n", why);
            atomic_store_explicit(&state, why ? OFF : OPEN, memory_order_release);
        }
        pthread_mutex_unlock(&opening);
        errno = saved;
    }
    return atomic_load_explicit(&state, memory_order_acquire) == OPEN;
}

void *real_symbol(const char *name, const char *const *libraries, void *own)
{
    void *found = dlsym(RTLD_NEXT, name);
    for (; (!found || found == own) && *libraries; libraries++) {
        void *library = dlopen(*libraries, RTLD_LAZY | RTLD_NOLOAD);
        if (!library)
            continue;
        found = dlsym(library, name);
        dlclose(library);
    }
    return found == own ? NULL : found;
}
