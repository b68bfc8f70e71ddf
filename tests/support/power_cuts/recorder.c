/* Records what a process writes below one directory, and what it has synced.

   Preloaded (LD_PRELOAD). RECORD_BELOW is the directory, RECORD_TO the record's file.
   Every call is made and recorded under one lock, so that the record has the order in
   which things happened. Only a sync waits outside of it: its beginning and its end
   have an entry each, and what is written between the two may or may not be synced.
   After RECORD_KILLS_AFTER entries the process is killed, with nothing left unrecorded.

   An entry is a head, and then the path or the data. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FDS 65536

struct head {
    char kind;
    char more[3];
    int32_t fd;
    int64_t at;
    uint32_t size;
    uint32_t second_size;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_size;
static int to = -1;
static long left = -1;
static int64_t syncs;
static volatile char is_ours[MOST_FDS], writes_through[MOST_FDS], appends[MOST_FDS];

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("RECORD_BELOW"), *file = getenv("RECORD_TO");
    const char *kills = getenv("RECORD_KILLS_AFTER");
    unsetenv("LD_PRELOAD");
    if (!below || !file)
        return;
    snprintf(root, sizeof root, "%s", below);
    root_size = strlen(root);
    left = kills ? atol(kills) : -1;
    to = syscall(SYS_openat, AT_FDCWD, file,
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int tracked(int fd) { return fd >= 0 && fd < MOST_FDS && is_ours[fd]; }

static int full_path(int dir, const char *path, char *full) {
    if (to < 0 || !path)
        return 0;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char link[64], base[PATH_MAX];
        if (dir == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
        if (size < 0)
            return 0;
        base[size] = 0;
        if (snprintf(full, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
            return 0;
    }
    return !strncmp(full, root, root_size) &&
           (full[root_size] == '/' || !full[root_size]);
}

static void record(char kind, int fd, int64_t at, const void *data, size_t size,
                   const void *second, size_t second_size) {
    struct head head = {kind, "", fd, at, size, second_size};
    struct iovec parts[3] = {{&head, sizeof head},
                             {(void *)data, size},
                             {(void *)second, second_size}};
    int error = errno;
    if (syscall(SYS_writev, to, parts, 3) < 0)
        abort();
    if (left > 0 && !--left) {
        syscall(SYS_kill, getpid(), SIGKILL);
        for (;;)
            pause();
    }
    errno = error;
}

static int opened(int dir, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    int below = full_path(dir, path, full);
    if (!below)
        return syscall(SYS_openat, dir, path, flags, mode);
    pthread_mutex_lock(&lock);
    int fd = syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && fd < MOST_FDS) {
        is_ours[fd] = 1;
        writes_through[fd] = (flags & (O_DSYNC | O_SYNC)) != 0;
        appends[fd] = (flags & O_APPEND) != 0;
        record('O', fd, flags, full, strlen(full), "", 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags, mode)                                                              \
    mode_t mode = 0;                                                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                           \
        va_list more;                                                                  \
        va_start(more, flags);                                                         \
        mode = va_arg(more, int);                                                      \
        va_end(more);                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(dir, path, flags | O_LARGEFILE, mode);
}
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) {
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static ssize_t wrote(int fd, const void *data, size_t size, int64_t at) {
    pthread_mutex_lock(&lock);
    ssize_t done;
    if (at >= 0) {
        done = syscall(SYS_pwrite64, fd, data, size, at);
    } else {
        done = syscall(SYS_write, fd, data, size);
        if (done >= 0)
            at = syscall(SYS_lseek, fd, 0, SEEK_CUR) - done;
    }
    struct stat status;
    if (done > 0 && appends[fd] && !fstat(fd, &status))
        at = status.st_size - done; /* Linux appends whatever a pwrite says */
    if (done > 0)
        record('W', fd, at, data, done, "", 0);
    if (done > 0 && writes_through[fd]) {
        int64_t number = ++syncs;
        record('B', fd, number, "", 0, "", 0);
        record('E', fd, number, "", 0, "", 0);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    return tracked(fd) ? wrote(fd, data, size, -1)
                       : syscall(SYS_write, fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return tracked(fd) ? wrote(fd, data, size, at)
                       : syscall(SYS_pwrite64, fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return pwrite(fd, data, size, at);
}
/* A short write is allowed, and is what the caller of a tracked file gets. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!tracked(fd))
        return syscall(SYS_writev, fd, parts, count);
    for (int place = 0; place < count; place++)
        if (parts[place].iov_len)
            return wrote(fd, parts[place].iov_base, parts[place].iov_len, -1);
    return 0;
}

static int cut(int fd, off_t size) {
    if (!tracked(fd))
        return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    int done = syscall(SYS_ftruncate, fd, size);
    if (!done)
        record('T', fd, size, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
    return done;
}
int ftruncate(int fd, off_t size) { return cut(fd, size); }
int ftruncate64(int fd, off64_t size) { return cut(fd, size); }

static int synced(int fd, int call) {
    if (!tracked(fd))
        return syscall(call, fd);
    pthread_mutex_lock(&lock);
    int64_t number = ++syncs;
    record('B', fd, number, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
    int done = syscall(call, fd);
    if (!done) {
        pthread_mutex_lock(&lock);
        record('E', fd, number, "", 0, "", 0);
        pthread_mutex_unlock(&lock);
    }
    return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int close(int fd) {
    if (!tracked(fd))
        return syscall(SYS_close, fd);
    pthread_mutex_lock(&lock);
    is_ours[fd] = 0;
    record('C', fd, 0, "", 0, "", 0);
    int done = syscall(SYS_close, fd);
    pthread_mutex_unlock(&lock);
    return done;
}

static int removed(int dir, const char *path, int flags) {
    char full[PATH_MAX];
    if (!full_path(dir, path, full))
        return syscall(SYS_unlinkat, dir, path, flags);
    pthread_mutex_lock(&lock);
    int done = syscall(SYS_unlinkat, dir, path, flags);
    if (!done)
        record('U', -1, 0, full, strlen(full), "", 0);
    pthread_mutex_unlock(&lock);
    return done;
}
int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int dir, const char *path, int flags) { return removed(dir, path, flags); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int done = unlink(path);
    return done && errno == EISDIR ? rmdir(path) : done;
}

static int renamed(int dir, const char *path, int new_dir, const char *new_path,
                   unsigned flags) {
    char full[PATH_MAX], new_full[PATH_MAX];
    int below = full_path(dir, path, full);
    if (!below | !full_path(new_dir, new_path, new_full))
        return syscall(SYS_renameat2, dir, path, new_dir, new_path, flags);
    pthread_mutex_lock(&lock);
    int done = syscall(SYS_renameat2, dir, path, new_dir, new_path, flags);
    if (!done)
        record('R', -1, 0, full, strlen(full), new_full, strlen(new_full));
    pthread_mutex_unlock(&lock);
    return done;
}
int rename(const char *path, const char *new_path) {
    return renamed(AT_FDCWD, path, AT_FDCWD, new_path, 0);
}
int renameat(int dir, const char *path, int new_dir, const char *new_path) {
    return renamed(dir, path, new_dir, new_path, 0);
}
int renameat2(int dir, const char *path, int new_dir, const char *new_path,
              unsigned flags) {
    return renamed(dir, path, new_dir, new_path, flags);
}

static int made(int dir, const char *path, mode_t mode) {
    char full[PATH_MAX];
    if (!full_path(dir, path, full))
        return syscall(SYS_mkdirat, dir, path, mode);
    pthread_mutex_lock(&lock);
    int done = syscall(SYS_mkdirat, dir, path, mode);
    if (!done)
        record('M', -1, 0, full, strlen(full), "", 0);
    pthread_mutex_unlock(&lock);
    return done;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int dir, const char *path, mode_t mode) { return made(dir, path, mode); }
