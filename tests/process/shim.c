/* Faults in the calls that keep bytes, for whatever is started with LD_PRELOAD of this library.
 *
 * HAULAGE_SHIM names a folder. Calls on paths beneath it are written to its file "calls", a line each:
 *     PID OP PATH            OP is open, write, fsync (or fdatasync), truncate, close, rename, link, unlink, rmdir, mkdir,
 *                            flock
 * Its file "rules" says what goes wrong, read again at each call:
 *     OP SUBSTRING N ACTION [AFTER]
 *                            the Nth such call of a process (0: every one) whose path holds SUBSTRING, or ends
 *                            with it where it ends with a $; where AFTER is given, calls count only after this
 *                            process renamed a path that holds it
 * Actions: EIO ENOSPC EDQUOT; KILL (before the call), KILLED (after it); SHORT (half is written, as the kernel may);
 * LIE (nothing is done, and the kernel says it was). A rule that fired leaves "FIRED RULE" in "calls".
 *
 * HAULAGE_SHIM_CLOCK is by how many seconds this process believes its clock to be ahead; files keep the kernel's time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum action { NONE, FAIL, KILL, KILLED, SHORT, LIE };

static char counted[64][PATH_MAX + 64]; /* rules that this process has met, and how often */
static int times[64];
static char renamed[PATH_MAX];

static void note(const char *folder, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/calls", folder);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    syscall(SYS_write, fd, text, strlen(text));
    syscall(SYS_close, fd);
}

static int met(const char *rule) {
    for (int i = 0; i < 64; i++) {
        if (!counted[i][0]) strncpy(counted[i], rule, sizeof counted[i] - 1);
        if (strcmp(counted[i], rule) == 0) return ++times[i];
    }
    return 0;
}

static int holds(const char *path, const char *part) {
    size_t whole = strlen(path), size = strlen(part);
    if (size && part[size - 1] == '$') {
        size--;
        return whole >= size && strncmp(path + whole - size, part, size) == 0;
    }
    return strstr(path, part) != NULL;
}

static enum action look(const char *op, const char *path) {
    const char *folder = getenv("HAULAGE_SHIM");
    if (!folder || !path || strncmp(path, folder, strlen(folder)) != 0 || strstr(path, "/calls")) return NONE;
    if (path[strlen(folder)] != '/') return NONE; /* the folder itself, or another whose name begins like its name */
    char line[PATH_MAX + 64], text[PATH_MAX + 96], place[PATH_MAX];
    snprintf(line, sizeof line, "%d %s %s\n", (int)getpid(), op, path + strlen(folder) + 1);
    note(folder, line);
    snprintf(place, sizeof place, "%s/rules", folder);
    int fd = syscall(SYS_openat, AT_FDCWD, place, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NONE;
    char rules[4096] = {0};
    syscall(SYS_read, fd, rules, sizeof rules - 1);
    syscall(SYS_close, fd);
    char *rest = rules;
    for (char *rule; (rule = strsep(&rest, "\n"));) {
        char on[16], part[256], what[16], after[256] = "";
        int nth;
        if (sscanf(rule, "%15s %255s %d %15s %255s", on, part, &nth, what, after) < 4) continue;
        if (strcmp(on, op) != 0 || !holds(path, part) || !strstr(renamed, after)) continue;
        int now = met(rule);
        if (nth && now != nth) continue;
        snprintf(text, sizeof text, "FIRED %s\n", rule);
        note(folder, text);
        if (!strcmp(what, "KILL")) kill(getpid(), SIGKILL);
        if (!strcmp(what, "KILLED")) return KILLED;
        if (!strcmp(what, "SHORT")) return SHORT;
        if (!strcmp(what, "LIE")) return LIE;
        errno = !strcmp(what, "ENOSPC") ? ENOSPC : !strcmp(what, "EDQUOT") ? EDQUOT : EIO;
        return FAIL;
    }
    return NONE;
}

static const char *of_descriptor(int fd, const char *name, char *buffer) {
    char link[64];
    if (name && name[0] == '/') return name;
    if (fd == AT_FDCWD) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, buffer, PATH_MAX - 1);
    if (size < 0) return NULL;
    buffer[size] = 0;
    if (name) {
        strncat(buffer, "/", PATH_MAX - strlen(buffer) - 1);
        strncat(buffer, name, PATH_MAX - strlen(buffer) - 1);
    }
    return buffer;
}

static long done(enum action action, long result) {
    if (action == KILLED) kill(getpid(), SIGKILL);
    return result;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CALL(action, made) ((action) == FAIL ? -1 : (action) == LIE ? 0 : done(action, made))

int clock_gettime(clockid_t clock, struct timespec *now) {
    const char *ahead = getenv("HAULAGE_SHIM_CLOCK");
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && ahead && clock == CLOCK_REALTIME) now->tv_sec += atol(ahead);
    return result;
}

ssize_t write(int fd, const void *data, size_t size) {
    char buffer[PATH_MAX];
    enum action action = look("write", of_descriptor(fd, NULL, buffer));
    if (action == FAIL) return -1;
    if (action == LIE) return size;
    return done(action, REAL(write)(fd, data, action == SHORT && size > 1 ? size / 2 : size));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    char buffer[PATH_MAX];
    enum action action = look("write", of_descriptor(fd, NULL, buffer));
    if (action == FAIL) return -1;
    if (action == LIE) return size;
    return done(action, REAL(pwrite64)(fd, data, action == SHORT && size > 1 ? size / 2 : size, at));
}

int fsync(int fd) {
    char buffer[PATH_MAX];
    enum action action = look("fsync", of_descriptor(fd, NULL, buffer));
    return CALL(action, REAL(fsync)(fd));
}

int fdatasync(int fd) {
    char buffer[PATH_MAX];
    enum action action = look("fsync", of_descriptor(fd, NULL, buffer));
    return CALL(action, REAL(fdatasync)(fd));
}

int rename(const char *from, const char *to) {
    enum action action = look("rename", from);
    strncpy(renamed, from, sizeof renamed - 1);
    return CALL(action, REAL(rename)(from, to));
}

int link(const char *from, const char *to) {
    enum action action = look("link", to);
    return action == FAIL ? -1 : done(action, REAL(link)(from, to));
}

int flock(int fd, int operation) {
    char buffer[PATH_MAX];
    enum action action = look("flock", of_descriptor(fd, NULL, buffer));
    if (action == LIE) return 0;
    return action == FAIL ? -1 : done(action, REAL(flock)(fd, operation));
}

int unlink(const char *path) {
    enum action action = look("unlink", path);
    return CALL(action, REAL(unlink)(path));
}

int rmdir(const char *path) {
    enum action action = look("rmdir", path);
    return CALL(action, REAL(rmdir)(path));
}

int unlinkat(int folder, const char *name, int flags) {
    char buffer[PATH_MAX];
    const char *path = of_descriptor(folder, name, buffer);
    enum action action = look(flags & AT_REMOVEDIR ? "rmdir" : "unlink", path);
    return CALL(action, REAL(unlinkat)(folder, name, flags));
}

int mkdir(const char *path, mode_t mode) {
    enum action action = look("mkdir", path);
    return CALL(action, REAL(mkdir)(path, mode));
}

/* What cannot be lied about: the caller goes on with what it is given. */

#define OPENED(name)                                                                  \
    int name(const char *path, int flags, ...) {                                      \
        va_list rest;                                                                 \
        va_start(rest, flags);                                                        \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                     \
        va_end(rest);                                                                 \
        enum action action = look("open", path);                                      \
        return action == FAIL ? -1 : done(action, REAL(name)(path, flags, mode));     \
    }

OPENED(open)
OPENED(open64)

int close(int fd) {
    char buffer[PATH_MAX];
    enum action action = look("close", of_descriptor(fd, NULL, buffer));
    int said = errno;
    long result = REAL(close)(fd); /* It is closed, also where it says that it failed. */
    if (action == FAIL) errno = said;
    return action == FAIL ? -1 : done(action, result);
}

int ftruncate64(int fd, off64_t size) {
    char buffer[PATH_MAX];
    enum action action = look("truncate", of_descriptor(fd, NULL, buffer));
    return CALL(action, REAL(ftruncate64)(fd, size));
}
