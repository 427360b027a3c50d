// Starts the tests of the stand-in: makes a node, and runs this program once more with the stand-in
// preloaded. The cases named Outside* run here, without it, and start programs of their own.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "fake_node.hpp"

namespace {

// For a child of exec: whether the descriptor it was left is still the device.
int tell_kind(const char* number) {
  struct stat status {};
  if (::fstat(std::atoi(number), &status) != 0) return 2;
  return S_ISCHR(status.st_mode) ? 0 : 1;
}

// For a script: a node for as long as standard input is open.
int serve() {
  const urdma::test::FakeNode node;
  std::printf("%s\n", node.directory().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

int run_inside(const urdma::test::FakeNode& node, char** arguments) {
  const std::string preload = std::string(::getenv("URDMA_KSTUB")) + " " + ::getenv("URDMA_EARLY");
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LD_PRELOAD", preload.c_str(), 1);
    ::setenv("URDMA_NODE_DIR", node.directory().c_str(), 1);
    ::execv("/proc/self/exe", arguments);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

bool has_filter(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--gtest_filter", 14) == 0) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--tell-kind") == 0) return tell_kind(argv[2]);
  if (argc == 2 && std::strcmp(argv[1], "--serve") == 0) return serve();
  const bool is_inside = ::getenv("URDMA_NODE_DIR") != nullptr;
  if (!has_filter(argc, argv)) testing::GTEST_FLAG(filter) = is_inside ? "-Outside*" : "Outside*";
  if (is_inside) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  if (::getenv("URDMA_KSTUB") == nullptr || ::getenv("URDMA_EARLY") == nullptr) {
    std::fprintf(stderr, "run this by `meson test`: URDMA_KSTUB and URDMA_EARLY must name the libraries\n");
    return 2;
  }
  int inside = 0;
  {
    const urdma::test::FakeNode node;
    inside = run_inside(node, argv);
    if (node.bytes_received() != 0) {
      std::fprintf(stderr, "the device's connections carried %zu bytes; nothing may be sent on them\n",
                   node.bytes_received());
      return 1;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  const int outside = RUN_ALL_TESTS();
  return inside != 0 ? inside : outside;
}
