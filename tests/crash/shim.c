/*
 * A library for LD_PRELOAD that stands between a program and one directory of the file system.
 *
 * It records every change below the directory CRASH_ROOT in the file CRASH_LOG, in one order for all threads and processes, and it
 * makes chosen calls fail. Both are controlled by the file CRASH_CONTROL, which tests read and write while the program runs.
 * The index of a write-ahead log (-shm) is not recorded: SQLite makes it anew after a crash. Nor is a file without a name. Calls on
 * them can fail all the same.
 *
 * Syncs are recorded, but not done: the disk is simulated. A change by another system call is not recorded. The suite notices it,
 * because the recorded changes then do not give the directory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The kinds of a record. recorder.rs has the same list. */
enum kind {
    CREATE = 1,
    WRITE,
    TRUNCATE,
    SYNC,
    SYNC_DIRECTORY,
    RENAME,
    UNLINK,
    MAKE_DIRECTORY,
    REMOVE_DIRECTORY,
    LINK,
};

/* The kinds of calls that can fail. recorder.rs has the same list. */
enum { FAULT_WRITE = 1, FAULT_SYNC = 2, FAULT_OPEN = 4, FAULT_RENAME = 8, FAULT_TRUNCATE = 16, FAULT_REMOVE = 32 };

/* How long a sync takes. A client that is answered before the sync has the time to note it. */
#define SYNC_MICROSECONDS 200

struct control {
    uint64_t records;      /* the number of records in the log */
    uint32_t fault_kinds;  /* which calls may fail; 0: none */
    int32_t fault_errno;
    uint64_t fault_first;  /* the first call that fails, counted from 1 */
    uint64_t fault_last;   /* the last one */
    uint64_t fault_calls;  /* the calls so far that the fault concerns */
    uint64_t fault_hits;   /* the calls so far that failed */
    char fault_path[256];  /* a part of the paths that the fault concerns; with `$` at its end, their end */
};

struct record {
    uint32_t kind;
    uint32_t error; /* 0, or the errno of a sync that failed */
    uint64_t inode;
    uint64_t offset; /* of a write; the length of a truncation; the number of records when a sync began */
    uint32_t path;   /* the length of the path, which follows */
    uint32_t other;  /* the length of the second path */
    uint64_t bytes;  /* the length of the bytes that were written */
};

static char root[PATH_MAX];
static size_t root_length;
static struct control *control;
static int log_fd = -1;
static int is_spared; /* whether no call of this process fails */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Calls the function of the C library. */
#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

__attribute__((constructor)) static void start(void)
{
    const char *directory = getenv("CRASH_ROOT"), *log = getenv("CRASH_LOG"), *shared = getenv("CRASH_CONTROL");
    if (!directory || !log || !shared)
        return;
    int fd = REAL(open)(shared, O_RDWR | O_CLOEXEC);
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    log_fd = REAL(open)(log, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (memory == MAP_FAILED || log_fd < 0)
        abort();
    root_length = strlen(directory);
    memcpy(root, directory, root_length + 1);
    is_spared = getenv("CRASH_SPARED") != NULL;
    control = memory;
}

static void lock(void)
{
    pthread_mutex_lock(&mutex);
    flock(log_fd, LOCK_EX);
}

static void unlock(void)
{
    int saved = errno;
    flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

static int is_below(const char *path)
{
    return control && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

static int ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), part = strlen(end);
    return length > part && strcmp(path + length - part, end) == 0;
}

/* The index of a write-ahead log, or a file without a name. A power loss ends both. */
static int is_unrecorded(const char *path)
{
    return ends_with(path, "-shm") || ends_with(path, " (deleted)");
}

/* The path of an open file or directory. Returns whether it is below the root. */
static int path_of(int fd, char *path)
{
    char name[64];
    if (!control || fd < 0)
        return 0;
    int saved = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    errno = saved;
    path[length > 0 ? length : 0] = 0;
    return is_below(path);
}

/* The absolute path of `name`, which is relative to an open directory. Returns whether it is below the root. */
static int path_at(int directory, const char *name, char *path)
{
    if (!control || !name)
        return 0;
    if (name[0] == '/')
        snprintf(path, PATH_MAX, "%s", name);
    else {
        char base[PATH_MAX];
        if (directory == AT_FDCWD) {
            if (!getcwd(base, sizeof base))
                return 0;
        } else
            path_of(directory, base);
        if (strlen(base) + strlen(name) + 2 > PATH_MAX)
            abort();
        strcpy(path, base);
        strcat(path, "/");
        strcat(path, name);
    }
    return is_below(path);
}

static int is_concerned(const char *path)
{
    size_t length = strlen(path), part = strlen(control->fault_path);
    if (part == 0 || control->fault_path[part - 1] != '$')
        return strstr(path, control->fault_path) != NULL;
    return length >= part - 1 && memcmp(path + length - (part - 1), control->fault_path, part - 1) == 0;
}

/* Whether this call fails. The caller holds the lock. */
static int fails(unsigned kind, const char *path)
{
    if (is_spared || !(control->fault_kinds & kind) || !is_concerned(path))
        return 0;
    uint64_t call = ++control->fault_calls;
    if (call < control->fault_first || call > control->fault_last)
        return 0;
    control->fault_hits++;
    errno = control->fault_errno;
    return 1;
}

static void append(struct record record, const char *path, const char *other, const void *bytes)
{
    int saved = errno;
    record.path = strlen(path);
    record.other = other ? strlen(other) : 0;
    struct iovec parts[] = {
        {&record, sizeof record}, {(void *)path, record.path}, {(void *)other, record.other}, {(void *)bytes, record.bytes}};
    size_t all = sizeof record + record.path + record.other + record.bytes;
    if (writev(log_fd, parts, 4) != (ssize_t)all)
        abort();
    control->records++;
    errno = saved;
}

static uint64_t inode_of(int fd)
{
    struct stat found;
    int saved = errno;
    uint64_t inode = fstat(fd, &found) == 0 ? found.st_ino : 0;
    errno = saved;
    return inode;
}

/* Files */

static int opened(int directory, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    int (*openat_)(int, const char *, int, ...) = real("openat64");
    if (!path_at(directory, name, path))
        return openat_(directory, name, flags, mode);
    lock();
    int fd = -1;
    if (!fails(FAULT_OPEN, path)) {
        struct stat before;
        int saved = errno;
        int is_new = (flags & O_CREAT) && fstatat(directory, name, &before, 0) != 0;
        errno = saved;
        fd = openat_(directory, name, flags, mode);
        if (fd >= 0 && is_new && !is_unrecorded(path))
            append((struct record){.kind = CREATE, .inode = inode_of(fd)}, path, NULL, NULL);
        else if (fd >= 0 && (flags & O_TRUNC) && !is_unrecorded(path))
            append((struct record){.kind = TRUNCATE, .inode = inode_of(fd)}, path, NULL, NULL);
    }
    unlock();
    return fd;
}

#define MODE(flags, mode)                    \
    mode_t mode = 0;                         \
    if (flags & (O_CREAT | O_TMPFILE)) {     \
        va_list list;                        \
        va_start(list, flags);               \
        mode = va_arg(list, mode_t);         \
        va_end(list);                        \
    }

int open(const char *name, int flags, ...)
{
    MODE(flags, mode)
    return opened(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...) __attribute__((alias("open")));

int openat(int directory, const char *name, int flags, ...)
{
    MODE(flags, mode)
    return opened(directory, name, flags, mode);
}

int openat64(int directory, const char *name, int flags, ...) __attribute__((alias("openat")));

/* Where a write without an offset goes. */
static uint64_t position(int fd)
{
    struct stat found;
    if ((fcntl(fd, F_GETFL) & O_APPEND) && fstat(fd, &found) == 0)
        return found.st_size;
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 ? 0 : at;
}

static void wrote(int fd, const char *path, uint64_t offset, const void *bytes, ssize_t written)
{
    if (written > 0 && !is_unrecorded(path))
        append((struct record){.kind = WRITE, .inode = inode_of(fd), .offset = offset, .bytes = written}, path, NULL, bytes);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    char path[PATH_MAX];
    if (!path_of(fd, path))
        return REAL(write)(fd, bytes, length);
    lock();
    ssize_t written = -1;
    if (!fails(FAULT_WRITE, path)) {
        uint64_t offset = position(fd);
        written = REAL(write)(fd, bytes, length);
        wrote(fd, path, offset, bytes, written);
    }
    unlock();
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
    char path[PATH_MAX];
    if (!path_of(fd, path))
        return REAL(pwrite64)(fd, bytes, length, offset);
    lock();
    ssize_t written = -1;
    if (!fails(FAULT_WRITE, path)) {
        written = REAL(pwrite64)(fd, bytes, length, offset);
        wrote(fd, path, offset, bytes, written);
    }
    unlock();
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) __attribute__((alias("pwrite64")));

int ftruncate64(int fd, off64_t length)
{
    char path[PATH_MAX];
    if (!path_of(fd, path))
        return REAL(ftruncate64)(fd, length);
    lock();
    int result = -1;
    if (!fails(FAULT_TRUNCATE, path)) {
        result = REAL(ftruncate64)(fd, length);
        if (result == 0 && !is_unrecorded(path))
            append((struct record){.kind = TRUNCATE, .inode = inode_of(fd), .offset = length}, path, NULL, NULL);
    }
    unlock();
    return result;
}

int ftruncate(int fd, off_t length) __attribute__((alias("ftruncate64")));

static int synced(int fd, int (*sync_)(int))
{
    char path[PATH_MAX];
    struct stat found;
    if (!path_of(fd, path) || is_unrecorded(path) || fstat(fd, &found) != 0)
        return sync_(fd);
    uint64_t begun = __atomic_load_n(&control->records, __ATOMIC_SEQ_CST);
    usleep(SYNC_MICROSECONDS);
    lock();
    int failed = fails(FAULT_SYNC, path);
    struct record record = {
        .kind = S_ISDIR(found.st_mode) ? SYNC_DIRECTORY : SYNC,
        .error = failed ? errno : 0,
        .inode = found.st_ino,
        .offset = begun,
    };
    append(record, path, NULL, NULL);
    unlock();
    return failed ? -1 : 0;
}

int fsync(int fd)
{
    return synced(fd, REAL(fsync));
}

int fdatasync(int fd)
{
    return synced(fd, REAL(fdatasync));
}

/* Names */

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (!path_at(from_directory, from, path) || !path_at(to_directory, to, other))
        return REAL(renameat2)(from_directory, from, to_directory, to, flags);
    lock();
    int result = -1;
    if (!fails(FAULT_RENAME, path)) {
        result = REAL(renameat2)(from_directory, from, to_directory, to, flags);
        if (result == 0)
            append((struct record){.kind = RENAME}, path, other, NULL);
    }
    unlock();
    return result;
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (!path_at(from_directory, from, path) || !path_at(to_directory, to, other))
        return REAL(linkat)(from_directory, from, to_directory, to, flags);
    lock();
    int result = -1;
    if (!fails(FAULT_RENAME, other)) {
        result = REAL(linkat)(from_directory, from, to_directory, to, flags);
        if (result == 0)
            append((struct record){.kind = LINK}, path, other, NULL);
    }
    unlock();
    return result;
}

int unlinkat(int directory, const char *name, int flags)
{
    char path[PATH_MAX];
    if (!path_at(directory, name, path))
        return REAL(unlinkat)(directory, name, flags);
    lock();
    int result = -1;
    if (!fails(FAULT_REMOVE, path)) {
        result = REAL(unlinkat)(directory, name, flags);
        if (result == 0 && !is_unrecorded(path))
            append((struct record){.kind = flags & AT_REMOVEDIR ? REMOVE_DIRECTORY : UNLINK}, path, NULL, NULL);
    }
    unlock();
    return result;
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    if (!path_at(directory, name, path))
        return REAL(mkdirat)(directory, name, mode);
    lock();
    int result = -1;
    if (!fails(FAULT_OPEN, path)) {
        result = REAL(mkdirat)(directory, name, mode);
        struct stat made;
        if (result == 0 && fstatat(directory, name, &made, 0) == 0)
            append((struct record){.kind = MAKE_DIRECTORY, .inode = made.st_ino}, path, NULL, NULL);
    }
    unlock();
    return result;
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}
