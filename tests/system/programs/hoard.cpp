// Takes as much of a node as it can get. Usage: hoard. Opens the device again and again, and allocates
// protection domains until a context gets none; prints how many there are, and fails if one more can be
// imported. Keeps them until SIGTERM, and ends with 0.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "verbs_test.hpp"

using namespace urdma::system_test;

namespace {

ibv_context* open_device() {
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (devices == nullptr || devices[0] == nullptr) fail("there is no verbs device");
  ibv_context* context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (context == nullptr) fail("ibv_open_device");
  return context;
}

// The domains of one context, as many as it gets.
std::vector<ibv_pd*> take_all(ibv_context* context) {
  std::vector<ibv_pd*> taken;
  while (ibv_pd* pd = ibv_alloc_pd(context)) taken.push_back(pd);
  if (errno != ENOMEM) fail("ibv_alloc_pd: another error than ENOMEM: " + std::to_string(errno));
  return taken;
}

void expect_no_import(const ibv_pd& pd) {
  ibv_context* imported = ibv_import_device(::dup(pd.context->cmd_fd));
  if (imported == nullptr) fail("ibv_import_device");
  errno = 0;
  if (ibv_import_pd(imported, pd.handle) != nullptr || errno != ENOMEM) fail("a domain can be imported");
  ibv_close_device(imported);
}

void run() {
  sigset_t termination;
  sigemptyset(&termination);
  sigaddset(&termination, SIGTERM);
  sigprocmask(SIG_BLOCK, &termination, nullptr);  // before the device's thread is there
  std::vector<ibv_context*> contexts;
  std::vector<ibv_pd*> taken;
  std::size_t more = 1;
  while (more != 0) {
    contexts.push_back(open_device());
    const auto pds = take_all(contexts.back());
    more = pds.size();
    taken.insert(taken.end(), pds.begin(), pds.end());
  }
  if (!taken.empty()) expect_no_import(*taken.front());
  std::printf("%zu\n", taken.size());
  std::fflush(stdout);
  int number = 0;
  sigwait(&termination, &number);
  for (ibv_pd* pd : taken) expect_zero(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  for (ibv_context* context : contexts) ibv_close_device(context);
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hoard: %s\n", error.what());
    return 1;
  }
  return 0;
}
