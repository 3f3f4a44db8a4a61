/*
 * A library for LD_PRELOAD: it makes chosen syncs wait. If the file that SYNCS_HOLD names exists, a sync of a path that ends with
 * the file's text waits until the file is gone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Writes the path of an open file to `path`, which has room for PATH_MAX bytes and a line break. */
static size_t path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX);
    return length < 0 ? 0 : (size_t)length;
}

static int is_held(const char *path, size_t length)
{
    char end[256];
    const char *control = getenv("SYNCS_HOLD");
    int file = control ? open(control, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t wanted = read(file, end, sizeof end);
    close(file);
    return wanted >= 0 && (size_t)wanted <= length && memcmp(path + length - wanted, end, (size_t)wanted) == 0;
}

static int sync_file(int file, long call)
{
    char path[PATH_MAX];
    size_t length = path_of(file, path);
    while (is_held(path, length))
        usleep(5000);
    return (int)syscall(call, file);
}

int fsync(int file)
{
    return sync_file(file, SYS_fsync);
}

int fdatasync(int file)
{
    return sync_file(file, SYS_fdatasync);
}
