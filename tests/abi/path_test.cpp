// The node's tree, as a program with the stand-in sees it: below /sys and /dev, whatever function it asks.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace urdma::test {
namespace {

constexpr const char* kParent = "/sys/devices/virtual/urdma/urdma0";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string port(const std::string& path) { return "/sys/class/infiniband/urdma0/ports/1/" + path; }

// What reading an open file gives: its size, or minus errno.
ssize_t read_result(int fd) {
  char bytes[64];
  const ssize_t size = ::read(fd, bytes, sizeof(bytes));
  const ssize_t result = size < 0 ? -errno : size;
  ::close(fd);
  return result;
}

TEST(Tree, Files_ReadAsTheKernels) {
  EXPECT_EQ(first_line("/sys/class/infiniband_verbs/abi_version"), "6");
  EXPECT_EQ(first_line("/sys/class/infiniband_verbs/uverbs0/dev"), "231:192");
  EXPECT_EQ(first_line("/sys/class/infiniband/urdma0/node_type"), "1: CA");
  EXPECT_EQ(first_line("/sys/class/infiniband/urdma0/device/vendor"), "0x1234");
  EXPECT_EQ(first_line(port("gids/0")), "0000:0000:0000:0000:0000:ffff:7f00:0001");
  EXPECT_EQ(first_line(port("gid_attrs/types/0")), "RoCE v2");
  EXPECT_EQ(first_line("/sys/class/infiniband/urdma0/device/net/lo/ifindex"), "1");
}

TEST(Tree, Files_RelativeToADirectory) {
  const int root = ::open("/", O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(read_result(::openat(root, "sys/class/infiniband/urdma0/node_type", O_RDONLY)), 6);
  ::close(root);
  const int sys = ::open("/sys/class", O_PATH);
  EXPECT_EQ(read_result(::openat(sys, "infiniband/urdma0/node_type", O_RDONLY)), 6);
  ::close(sys);
  DIR* const verbs = ::opendir("/sys/class/infiniband_verbs");
  EXPECT_EQ(read_result(::openat(::dirfd(verbs), "uverbs0/ibdev", O_RDONLY)), 7);
  ::closedir(verbs);
}

TEST(Tree, UnusedGid_ReadingItsAttributesIsInvalid) {
  for (const char* path : {"gid_attrs/types/1", "gid_attrs/ndevs/1", "gid_attrs/ndevs/5"}) {
    EXPECT_EQ(read_result(::open(port(path).c_str(), O_RDONLY)), -EINVAL) << path;
    EXPECT_EQ(read_result(::open64(port(path).c_str(), O_RDONLY | O_CLOEXEC)), -EINVAL) << path;
    FILE* const stream = ::fopen(port(path).c_str(), "r");
    ASSERT_NE(stream, nullptr);
    EXPECT_EQ(::fgetc(stream), EOF);
    EXPECT_NE(::ferror(stream), 0);
    EXPECT_EQ(errno, EINVAL);
    ::fclose(stream);
  }
  const int directory = ::open("/sys/class/infiniband/urdma0", O_PATH);
  EXPECT_EQ(read_result(::openat(directory, "ports/1/gid_attrs/types/1", O_RDONLY)), -EINVAL);
  ::close(directory);
  EXPECT_EQ(first_line(port("gids/1")), "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(read_result(::open(port("gid_attrs/types/0").c_str(), O_RDONLY)), 8);
  EXPECT_EQ(::open(port("gid_attrs/types/8").c_str(), O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Tree, UnusedGid_CloseOnExecIsKept) {
  const int fd = ::open(port("gid_attrs/types/1").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  ::close(fd);
  const int inherited = ::open(port("gid_attrs/types/1").c_str(), O_RDONLY);
  EXPECT_EQ(::fcntl(inherited, F_GETFD), 0);
  ::close(inherited);
}

TEST(Tree, Names_LeadBelowSys) {
  char text[PATH_MAX];
  ASSERT_STREQ(::realpath("/sys/class/infiniband/urdma0/device", text), kParent);
  char* name = ::canonicalize_file_name("/sys/class/infiniband_verbs/uverbs0/device");
  EXPECT_STREQ(name, kParent);
  ::free(name);
  const int fd = ::open("/sys/class/infiniband/urdma0/ports", O_RDONLY | O_DIRECTORY);
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const std::string expected = std::string(kParent) + "/infiniband/urdma0/ports";
  ssize_t size = ::readlink(link.c_str(), text, sizeof(text));
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)), expected);
  size = ::readlink(link.c_str(), text, expected.size());
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)), expected) << "a buffer that just fits";
  size = ::readlinkat(AT_FDCWD, link.c_str(), text, 5);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)), "/sys/");
  ::close(fd);
}

TEST(Tree, Names_LinksAreRelativeAsTheKernels) {
  char text[PATH_MAX];
  const ssize_t size = ::readlink("/sys/class/infiniband/urdma0", text, sizeof(text));
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)),
            "../../devices/virtual/urdma/urdma0/infiniband/urdma0");
}

TEST(Tree, Names_OfTheWorkingDirectory) {
  char before[PATH_MAX];
  ASSERT_NE(::getcwd(before, sizeof(before)), nullptr);
  ASSERT_EQ(::chdir("/sys/class/infiniband/urdma0/ports/1"), 0);
  char text[PATH_MAX];
  const std::string expected = std::string(kParent) + "/infiniband/urdma0/ports/1";
  EXPECT_STREQ(::getcwd(text, sizeof(text)), expected.c_str());
  char* name = ::get_current_dir_name();
  EXPECT_STREQ(name, expected.c_str());
  ::free(name);
  EXPECT_EQ(first_line("link_layer"), "Ethernet");
  EXPECT_EQ(read_result(::open("gid_attrs/types/1", O_RDONLY)), -EINVAL);
  ASSERT_EQ(::chdir("/sys/class"), 0);
  EXPECT_EQ(first_line("infiniband/urdma0/node_type"), "1: CA");
  EXPECT_EQ(::chdir(before), 0);
}

TEST(Tree, Listing_Directories) {
  dirent** names = nullptr;
  const int count = ::scandir("/sys/class/infiniband", &names, nullptr, alphasort);
  std::string all;
  for (int i = 0; i < count; ++i) {
    all += std::string(names[i]->d_name) + " ";
    ::free(names[i]);
  }
  ::free(names);
  EXPECT_NE(all.find("urdma0 urdma1 urdma2 "), std::string::npos) << all;
  EXPECT_TRUE(std::filesystem::is_directory("/sys/class/infiniband/urdma0/ports/1/gids"));
  int gids = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(port("gids"))) ++gids;
  EXPECT_EQ(gids, 8);
}

TEST(Tree, Listing_Devices) {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/infiniband"))
    all += entry.path().string() + (entry.is_character_file() ? " " : "? ");
  EXPECT_NE(all.find("/dev/infiniband/uverbs0 "), std::string::npos) << all;
}

TEST(Tree, Glob_FindsAndNamesPublicPaths) {
  glob_t found{};
  ASSERT_EQ(::glob("/sys/class/infiniband/*/ports/*/state", 0, nullptr, &found), 0);
  ASSERT_EQ(::glob("/dev/infiniband/uverbs0", GLOB_APPEND, nullptr, &found), 0);
  ASSERT_EQ(::glob("/etc/passwd", GLOB_APPEND, nullptr, &found), 0);
  ASSERT_GE(found.gl_pathc, 5U);
  EXPECT_STREQ(found.gl_pathv[0], "/sys/class/infiniband/urdma0/ports/1/state");
  EXPECT_STREQ(found.gl_pathv[found.gl_pathc - 2], "/dev/infiniband/uverbs0");
  EXPECT_STREQ(found.gl_pathv[found.gl_pathc - 1], "/etc/passwd");
  ::globfree(&found);
  ASSERT_EQ(::glob("/dev/infiniband/uverbs*", 0, nullptr, &found), 0);
  EXPECT_STREQ(found.gl_pathv[0], "/dev/infiniband/uverbs0");
  ::globfree(&found);
}

TEST(Tree, Permissions_ReadOnly) {
  EXPECT_EQ(::access(port("state").c_str(), R_OK), 0);
  EXPECT_EQ(::faccessat(AT_FDCWD, port("state").c_str(), R_OK, AT_EACCESS), 0);
  struct stat status {};
  ASSERT_EQ(::stat(port("state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFREG | 0444});
  ASSERT_EQ(::lstat("/sys/class/infiniband/urdma0", &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
}

TEST(Tree, Watch_IsPossible) {
  const int watcher = ::inotify_init1(IN_CLOEXEC);
  EXPECT_GE(::inotify_add_watch(watcher, "/sys/class/infiniband_verbs", IN_CREATE), 0);
  EXPECT_GE(::inotify_add_watch(watcher, "/dev/infiniband", IN_CREATE), 0);
  ::close(watcher);
}

TEST(Tree, Places_ThatOnlyBeginTheSame) {
  EXPECT_EQ(::open("/sys/class/infiniband_verbsx", O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(::open("/sys/class/urdmax", O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(::open("/dev/infinibandx/uverbs0", O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Programs, Shell_ReadsTheTree) {
  EXPECT_EQ(::system("test \"$(cat /sys/class/infiniband/urdma0/node_type)\" = '1: CA'"), 0);
  EXPECT_EQ(::system("test -c /dev/infiniband/uverbs0 && test -d /sys/class/infiniband/urdma0"), 0);
  EXPECT_EQ(::system("cd /sys/class/infiniband/urdma0 && test \"$(cat fw_ver)\" = 0.1.0"), 0);
  EXPECT_EQ(::system("ls -lR /sys/class/infiniband/ /dev/infiniband/uverbs0 >/dev/null"), 0);
  EXPECT_EQ(::system("test \"$(stat -L -c %t:%T /dev/infiniband/uverbs0)\" = e7:c0"), 0);
  EXPECT_NE(::system("cat /sys/class/infiniband/urdma0/ports/1/gid_attrs/types/1 2>/dev/null"), 0);
}

TEST(Early, Calls_BeforeTheConstructor) {
  const void* const result = ::dlsym(RTLD_DEFAULT, "urdma_early_result");
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(*static_cast<const int*>(result), 7);
}

}  // namespace
}  // namespace urdma::test
