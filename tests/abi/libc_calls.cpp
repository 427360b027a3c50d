// Makes many libc calls, and prints what each returned: run with and without the stand-in, it must print
// the same. With "all" it also asks for the paths that the stand-in claims when there is a node: without
// one they are the kernel's, too.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/netlink.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

// Fortified calls and those of programs linked before glibc 2.33, by their own names.
extern "C" {
int __open_2(const char*, int);
int __open64_2(const char*, int);
int __openat_2(int, const char*, int);
int __openat64_2(int, const char*, int);
int __xstat(int, const char*, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
ssize_t __readlink_chk(const char*, char*, size_t, size_t);
ssize_t __readlinkat_chk(int, const char*, char*, size_t, size_t);
char* __realpath_chk(const char*, char*, size_t);
char* __getcwd_chk(char*, size_t, size_t);
}

namespace {

constexpr int kStatVersion = 1;
constexpr int kOldErrno = 77;  // a value that no call sets: it must be left alone by calls that succeed

// A brace-enclosed list is evaluated from left to right: the call comes before what it has written.
struct Line {
  const char* call;
  const char* argument;
  long result;
  std::string more = "";
};

void print(const Line& line) {
  const int error = errno;
  const char* const argument = line.argument != nullptr ? line.argument : "null";
  printf("%s(%.60s) = %ld errno %d %.200s\n", line.call, argument, line.result, error, line.more.c_str());
  errno = kOldErrno;
}

// Descriptors differ between runs only if something is left open: that is to be seen.
void print_fd(const char* call, const char* argument, int fd) {
  print({call, argument, fd});
  if (fd >= 0) close(fd);
  errno = kOldErrno;
}

// Inodes below /proc differ from process to process.
std::string text_of(const char* path, const struct stat& status) {
  const bool is_process = std::strncmp(path, "/proc/", 6) == 0;
  return std::to_string(status.st_mode) + " " + std::to_string(status.st_rdev) + " " +
         (is_process ? "" : std::to_string(status.st_ino));
}

void print_stat(const char* call, const char* path, int result, const struct stat& status) {
  print({call, path, result, result == 0 ? text_of(path, status) : ""});
}

void call_stats(const char* path) {
  struct stat status {};
  struct stat64 status64 {};
  struct statx extended {};
  print_stat("stat", path, stat(path, &status), status);
  print_stat("lstat", path, lstat(path, &status), status);
  print_stat("fstatat", path, fstatat(AT_FDCWD, path, &status, 0), status);
  print_stat("fstatat nofollow", path, fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW), status);
  print_stat("__xstat", path, __xstat(kStatVersion, path, &status), status);
  print_stat("__lxstat", path, __lxstat(kStatVersion, path, &status), status);
  print_stat("__fxstatat", path, __fxstatat(kStatVersion, AT_FDCWD, path, &status, 0), status);
  print({"stat64", path, stat64(path, &status64), std::to_string(status64.st_ino)});
  print({"statx", path, statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended),
         std::to_string(extended.stx_mode)});
}

void call_opens(const char* path) {
  print_fd("open", path, open(path, O_RDONLY | O_CLOEXEC));
  print_fd("open rw", path, open(path, O_RDWR));
  print_fd("open directory", path, open(path, O_DIRECTORY));
  print_fd("open64", path, open64(path, O_RDONLY));
  print_fd("openat", path, openat(AT_FDCWD, path, O_RDONLY));
  print_fd("openat bad fd", path, openat(-5, path, O_RDONLY));
  print_fd("openat64", path, openat64(AT_FDCWD, path, O_RDONLY));
  print_fd("__open_2", path, __open_2(path, O_RDONLY));
  print_fd("__open64_2", path, __open64_2(path, O_RDONLY));
  print_fd("__openat_2", path, __openat_2(AT_FDCWD, path, O_RDONLY));
  print_fd("__openat64_2", path, __openat64_2(AT_FDCWD, path, O_RDONLY));
  FILE* stream = fopen(path, "re");
  print({"fopen", path, stream != nullptr});
  if (stream != nullptr) fclose(stream);
  errno = kOldErrno;
  stream = fopen64(path, "r");
  print({"fopen64", path, stream != nullptr});
  if (stream != nullptr) fclose(stream);
  stream = freopen("/dev/null", "r", fopen("/dev/zero", "r"));
  errno = kOldErrno;
  stream = freopen(path, "r", stream);
  print({"freopen", path, stream != nullptr});
  if (stream != nullptr) fclose(stream);
  errno = kOldErrno;
}

void call_directories(const char* path) {
  if (path == nullptr) return;  // libc's own opendir does not survive it
  DIR* directory = opendir(path);
  print({"opendir", path, directory != nullptr});
  if (directory != nullptr) closedir(directory);
  dirent** names = nullptr;
  errno = kOldErrno;
  int count = scandir(path, &names, nullptr, alphasort);
  print({"scandir", path, count < 0 ? count : 0, count > 0 ? names[count - 1]->d_name : ""});
  for (int i = 0; i < count; ++i) free(names[i]);
  if (count >= 0) free(names);
  names = nullptr;
  errno = kOldErrno;
  count = scandirat(AT_FDCWD, path, &names, nullptr, alphasort);
  print({"scandirat", path, count < 0 ? count : 0, count > 0 ? names[count - 1]->d_name : ""});
  for (int i = 0; i < count; ++i) free(names[i]);
  if (count >= 0) free(names);
}

void call_names(const char* path) {
  char text[4096] = "";
  char* resolved = realpath(path, text);
  print({"realpath", path, resolved == text, resolved != nullptr ? text : ""});
  resolved = realpath(path, nullptr);
  print({"realpath null", path, resolved != nullptr, resolved != nullptr ? resolved : ""});
  free(resolved);
  resolved = canonicalize_file_name(path);
  print({"canonicalize_file_name", path, resolved != nullptr, resolved != nullptr ? resolved : ""});
  free(resolved);
  errno = kOldErrno;
  print({"__realpath_chk", path, __realpath_chk(path, text, sizeof(text)) != nullptr});
  for (const size_t size : {sizeof(text), size_t{4}}) {
    std::memset(text, 0, sizeof(text));
    print({"readlink", path, readlink(path, text, size), text});
    print({"readlinkat", path, readlinkat(AT_FDCWD, path, text, size), text});
    print({"__readlink_chk", path, __readlink_chk(path, text, size, sizeof(text)), text});
    print({"__readlinkat_chk", path, __readlinkat_chk(AT_FDCWD, path, text, size, sizeof(text)), text});
  }
}

void call_permissions(const char* path) {
  print({"access", path, access(path, R_OK)});
  print({"access w", path, access(path, W_OK)});
  print({"eaccess", path, eaccess(path, R_OK)});
  print({"euidaccess", path, euidaccess(path, R_OK)});
  print({"faccessat", path, faccessat(AT_FDCWD, path, F_OK, AT_EACCESS)});
  print({"getxattr", path, getxattr(path, "user.x", nullptr, 0)});
  print({"lgetxattr", path, lgetxattr(path, "user.x", nullptr, 0)});
  print({"listxattr", path, listxattr(path, nullptr, 0)});
  print({"llistxattr", path, llistxattr(path, nullptr, 0)});
  const int watcher = inotify_init1(IN_CLOEXEC);
  errno = kOldErrno;
  print({"inotify_add_watch", path, inotify_add_watch(watcher, path, IN_CREATE)});
  close(watcher);
}

void call_glob(const char* pattern, int flags) {
  glob_t found{};
  found.gl_offs = 2;
  errno = kOldErrno;
  const int result = glob(pattern, flags, nullptr, &found);
  const size_t first = (flags & GLOB_DOOFFS) != 0 ? found.gl_offs : 0;
  print({"glob", pattern, result,
         std::to_string(found.gl_pathc) + " " + (found.gl_pathc > 0 ? found.gl_pathv[first] : "")});
  globfree(&found);
  errno = kOldErrno;
}

void call_working_directory() {
  char before[4096] = "";
  print({"getcwd", "", getcwd(before, sizeof(before)) != nullptr, before});
  char text[4096];
  print({"getcwd 1", "", getcwd(text, 1) != nullptr});
  print({"chdir", "/usr", chdir("/usr")});
  print({"getcwd", "", getcwd(text, sizeof(text)) != nullptr, text});
  print({"__getcwd_chk", "", __getcwd_chk(text, sizeof(text), sizeof(text)) != nullptr, text});
  char* name = get_current_dir_name();
  print({"get_current_dir_name", "", name != nullptr, name});
  free(name);
  print_fd("open relative", "bin", open("bin", O_RDONLY));
  print_fd("open relative", "infiniband", open("infiniband", O_RDONLY));
  print_fd("open relative", "uverbs0", open("uverbs0", O_RDONLY));
  print({"chdir", "not there", chdir("/not/there")});
  print({"chdir", "back", chdir(before)});
}

void call_fstats(const char* what, int fd) {
  struct stat status {};
  struct statx extended {};
  const auto kind = [&] { return std::to_string(status.st_mode) + " " + std::to_string(status.st_rdev); };
  print({"fstat", what, fstat(fd, &status), kind()});
  print({"__fxstat", what, __fxstat(kStatVersion, fd, &status), kind()});
  print({"fstatat empty", what, fstatat(fd, "", &status, AT_EMPTY_PATH), kind()});
  print({"fstatat empty, no flag", what, fstatat(fd, "", &status, 0)});
  print({"__fxstatat empty", what, __fxstatat(kStatVersion, fd, "", &status, AT_EMPTY_PATH), kind()});
  print({"statx empty", what, statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended),
         std::to_string(extended.stx_mode)});
}

// A null pointer that the compiler does not know for one.
[[gnu::noinline]] const void* nowhere() {
  const void* volatile pointer = nullptr;
  return pointer;
}

// Bytes with the shape of a uverbs command, to descriptors that are none.
void call_writes(const char* what, int fd) {
  struct {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_create_comp_channel body;
  } command{};
  command.header = {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 4, 1};
  print({"write command", what, write(fd, &command, sizeof(command))});
  iovec part{&command, sizeof(command)};
  print({"writev command", what, writev(fd, &part, 1)});
  print({"writev none", what, writev(fd, &part, 0)});
  print({"writev null", what, writev(fd, static_cast<const iovec*>(nowhere()), 1)});
  print({"write nothing", what, write(fd, &command, 0)});
  print({"write null", what, write(fd, nowhere(), sizeof(command))});
  ib_uverbs_ioctl_hdr request{};
  print({"ioctl verbs", what, ioctl(fd, RDMA_VERBS_IOCTL, &request)});
  int bytes = 0;
  print({"ioctl", what, ioctl(fd, FIONREAD, &bytes), std::to_string(bytes)});
}

// A connection between sockets whose name is nearly that of a device.
void call_named_sockets() {
  char directory[] = "/tmp/urdma-abi-XXXXXX";
  if (mkdtemp(directory) == nullptr) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "%s/uverbs0", directory);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  const int client = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 1) != 0 ||
      connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    printf("no named socket\n");
  errno = kOldErrno;
  call_fstats("named socket", client);
  call_writes("named socket", client);
  close(client);
  close(listener);
  unlink(address.sun_path);
  rmdir(directory);
  errno = kOldErrno;
}

void call_descriptors() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return;
  int ends[2];
  if (pipe(ends) != 0) return;
  const int file = open("/dev/null", O_RDWR);
  errno = kOldErrno;
  const struct {
    const char* name;
    int fd;
  } descriptors[] = {
      {"socketpair", pair[0]}, {"pipe", ends[1]}, {"/dev/null", file}, {"bad", 987}, {"-1", -1}};
  for (const auto& descriptor : descriptors) {
    call_fstats(descriptor.name, descriptor.fd);
    call_writes(descriptor.name, descriptor.fd);
  }
  for (const int fd : {pair[0], pair[1], ends[0], ends[1], file}) close(fd);
  errno = kOldErrno;
}

void call_sockets() {
  print_fd("socket", "unix", socket(AF_UNIX, SOCK_STREAM, 0));
  print_fd("socket", "inet", socket(AF_INET, SOCK_DGRAM, 0));
  print_fd("socket", "route", socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
  print_fd("socket", "unix 20", socket(AF_UNIX, SOCK_STREAM, NETLINK_RDMA));
  print_fd("socket", "bad", socket(-1, -1, -1));
}

void call_creation() {
  char directory[] = "/tmp/urdma-abi-XXXXXX";
  if (mkdtemp(directory) == nullptr) return;
  const std::string path = std::string(directory) + "/infiniband";
  umask(0);
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0640);
  struct stat status {};
  print({"open create", "", fd >= 0 && fstat(fd, &status) == 0, std::to_string(status.st_mode)});
  close(fd);
  print_fd("open exclusive", "", open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0640));
  const int unnamed = open(directory, O_TMPFILE | O_RDWR, 0604);
  print({"open tmpfile", "", unnamed >= 0 && fstat(unnamed, &status) == 0, std::to_string(status.st_mode)});
  close(unnamed);
  const int at = open(directory, O_DIRECTORY | O_PATH);
  errno = kOldErrno;
  print_fd("openat relative", "infiniband", openat(at, "infiniband", O_RDONLY));
  print({"fstatat relative", "infiniband", fstatat(at, "infiniband", &status, 0),
         std::to_string(status.st_mode)});
  print({"faccessat relative", "infiniband", faccessat(at, "infiniband", R_OK, 0)});
  close(at);
  unlink(path.c_str());
  rmdir(directory);
  errno = kOldErrno;
}

void call_paths(const std::vector<const char*>& paths) {
  for (const char* path : paths) {
    call_stats(path);
    call_opens(path);
    call_directories(path);
    call_names(path);
    call_permissions(path);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool asks_for_all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  errno = kOldErrno;
  const std::string too_long(5000, 'x');
  call_paths({"/",
              "/usr",
              "/bin",
              "/etc/passwd",
              "/not/there",
              "",
              "relative",
              "/dev/null",
              "/dev/infinibanx",
              "/sys/class/infinibanx",
              "/sys/class/infiniband_mad",
              "/sys/class/net",
              "/sys/class",
              "/sys/devices",
              "/dev",
              "/proc/self/exe",
              "/etc/passwd/x",
              "/sys/class/infiniband_verbsx/y",
              "./infiniband/uverbs0",
              too_long.c_str()});
  call_paths({nullptr});
  call_glob("/etc/pass*", 0);
  call_glob("/etc/pass*", GLOB_DOOFFS);
  call_glob("/not/there/*", 0);
  call_glob("/not/there/*", GLOB_NOCHECK);
  call_working_directory();
  call_descriptors();
  call_named_sockets();
  call_sockets();
  call_creation();
  if (!asks_for_all) return 0;
  call_paths({"/sys/class/infiniband", "/sys/class/infiniband/urdma0/node_type",
              "/sys/class/infiniband_verbs", "/sys/class/infiniband_verbs/abi_version", "/dev/infiniband",
              "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", "/sys/devices/virtual/urdma"});
  call_glob("/sys/class/infiniband/*", 0);
  print_fd("socket", "rdma", socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA));
  return 0;
}
