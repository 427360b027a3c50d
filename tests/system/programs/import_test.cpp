// Objects that one process makes and another imports: a device's descriptor goes over a socket, and with it a
// protection domain, a region of the maker's memory, and device memory.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kBytes = 64 * 1024;
constexpr std::size_t kDmBytes = 4096;
constexpr std::uint32_t kMakersSeed = 1;
constexpr std::uint32_t kImportersSeed = 2;

// What the maker tells the importer.
struct Handles {
  std::uint32_t pd;
  std::uint32_t mr;
  std::uint32_t dm;
  std::uint64_t address;  // of the region
};

void send_handles(int socket, const Handles& handles, int fd) {
  iovec part{const_cast<Handles*>(&handles), sizeof(handles)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fd))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  if (::sendmsg(socket, &message, 0) != sizeof(handles)) fail("sendmsg");
}

int receive_handles(int socket, Handles& handles) {
  iovec part{&handles, sizeof(handles)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(socket, &message, 0) != sizeof(handles)) fail("recvmsg");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  return fd;
}

// A child that shares nothing with us but a socket: it is made before any device is open.
class Importer {
 public:
  explicit Importer(const std::function<void(int socket)>& work) {
    int ends[2];
    expect_zero(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), "socketpair");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      try {
        work(ends[1]);
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "the importer: %s\n", error.what());
        ::_exit(1);
      }
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~Importer() { ::close(socket_); }
  [[nodiscard]] int socket() const { return socket_; }
  [[nodiscard]] int exit_status() const {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

void transfer(const Link& link, ibv_sge from, std::uint64_t to, std::uint32_t rkey) {
  ibv_send_wr request = rdma_request(IBV_WR_RDMA_WRITE, 1, {&from, 1}, to, rkey);
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
}

// Both ways between its own region and the maker's memory, which it cannot see itself.
void exchange(Device& device, const ibv_mr& imported, const Handles& handles) {
  const Region own(device, 2 * kBytes);
  const Link link(device);
  const ibv_sge theirs{handles.address, kBytes, imported.lkey};
  transfer(link, theirs, own.address(kBytes), own.registration.rkey());
  if (first_difference(own.memory.bytes(kBytes, kBytes), kMakersSeed) >= 0)
    fail("other bytes than the maker's");
  fill(own.memory.bytes(0, kBytes), kImportersSeed);
  transfer(link, own.sge(0, kBytes), handles.address, imported.rkey);

  // A fault of a queue pair of ours is told to us.
  ibv_sge piece = own.sge(0, 8);
  ibv_send_wr bad = rdma_request(IBV_WR_RDMA_WRITE, 2, {&piece, 1}, handles.address + kBytes, imported.rkey);
  link.a.post_send(bad);
  if (wait_for(link.a.send_cq).status != IBV_WC_REM_ACCESS_ERR)
    fail("a write behind the region went through");
  if (wait_for_async_event(device) != IBV_EVENT_QP_ACCESS_ERR) fail("another event than the access error");
}

void check_device_memory(ibv_context* context, std::uint32_t handle) {
  ibv_dm* dm = ::ibv_import_dm(context, handle);
  if (dm == nullptr) fail("ibv_import_dm");
  std::vector<std::uint8_t> bytes(kDmBytes);
  expect_zero(::ibv_memcpy_from_dm(bytes.data(), dm, 0, bytes.size()), "ibv_memcpy_from_dm");
  if (first_difference(bytes, kMakersSeed) >= 0) fail("other bytes in the device memory than the maker's");
  fill(bytes, kImportersSeed);
  expect_zero(::ibv_memcpy_to_dm(dm, 0, bytes.data(), bytes.size()), "ibv_memcpy_to_dm");
  ::ibv_unimport_dm(dm);
}

void import_and_use(int socket) {
  Handles handles{};
  ibv_context* context = ::ibv_import_device(receive_handles(socket, handles));
  if (context == nullptr) fail("ibv_import_device");
  ibv_pd* pd = ::ibv_import_pd(context, handles.pd);
  ibv_mr* mr = pd != nullptr ? ::ibv_import_mr(pd, handles.mr) : nullptr;
  if (mr == nullptr) fail("ibv_import_pd or ibv_import_mr");
  if (::ibv_import_mr(pd, handles.mr + 1) != nullptr) fail("a region that is not there was imported");
  {
    Device device;  // for its GID; the objects are of the imported context
    std::swap(device.context, context);
    std::swap(device.pd, pd);
    exchange(device, *mr, handles);
    check_device_memory(device.context, handles.dm);
    std::swap(device.context, context);
    std::swap(device.pd, pd);
  }
  ::ibv_unimport_mr(mr);
  ::ibv_unimport_pd(pd);
  expect_zero(::ibv_close_device(context), "ibv_close_device");
}

TEST(ImportTest, Process_UsesAnothersDomainRegionAndDeviceMemory) {
  const Importer importer(import_and_use);
  const Device device;
  const Region region(device, kBytes);
  fill(region.memory.bytes(), kMakersSeed);
  ibv_alloc_dm_attr wanted{};
  wanted.length = kDmBytes;
  ibv_dm* dm = ::ibv_alloc_dm(device.context, &wanted);
  ASSERT_NE(dm, nullptr);
  std::vector<std::uint8_t> bytes(kDmBytes);
  fill(bytes, kMakersSeed);
  ASSERT_EQ(::ibv_memcpy_to_dm(dm, 0, bytes.data(), bytes.size()), 0);
  send_handles(importer.socket(),
               {device.pd->handle, region.registration.mr()->handle, dm->handle, region.address()},
               device.context->cmd_fd);
  ASSERT_EQ(importer.exit_status(), 0);
  EXPECT_EQ(first_difference(region.memory.bytes(), kImportersSeed), -1);
  ASSERT_EQ(::ibv_memcpy_from_dm(bytes.data(), dm, 0, bytes.size()), 0);
  EXPECT_EQ(first_difference(bytes, kImportersSeed), -1);
  EXPECT_EQ(::ibv_free_dm(dm), 0);
}

}  // namespace
}  // namespace urdma::system_test
