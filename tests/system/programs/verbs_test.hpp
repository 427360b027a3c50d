// What the verbs programs of the system tests share: a device, memory with patterns, and two connected
// queue pairs. Each object owns what it made and undoes it in its destructor; calls that fail throw
// std::runtime_error, which ends the test that made them. Usable from several threads where verbs is.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace urdma::system_test {

inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr unsigned kSignaled = IBV_SEND_SIGNALED;
inline constexpr unsigned kUnsignaled = 0;
inline constexpr int kWaitLimitMs = 20'000;

[[noreturn]] void fail(const std::string& what);
void expect_zero(int result, const char* what);  // fails, with errno's text, unless result is 0

// The first device, opened, with one protection domain and the GID that its queue pairs use.
class Device {
 public:
  explicit Device(int gid_number = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  int gid_index;
  ibv_gid gid{};
  ibv_port_attr port{};
  ibv_device_attr limits{};
};

// Byte `offset` of the pattern that `seed` names.
std::uint8_t pattern_byte(std::uint32_t seed, std::size_t offset);
void fill(std::span<std::uint8_t> bytes, std::uint32_t seed);
// The offset of the first byte that is not the pattern's, or -1. `first` is the pattern's offset of bytes[0].
std::ptrdiff_t first_difference(std::span<const std::uint8_t> bytes, std::uint32_t seed,
                                std::size_t first = 0);

// Anonymous private memory of whole pages, as a program would have it, freed at the end.
class Memory {
 public:
  explicit Memory(std::size_t size);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::span<std::uint8_t> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::span<std::uint8_t> bytes(std::size_t offset, std::size_t size) const {
    return bytes().subspan(offset, size);
  }
  void release();  // unmaps early

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// A registration; the memory is the caller's.
class Registration {
 public:
  Registration(ibv_pd* pd, void* address, std::size_t size, int access = kAllAccess);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  [[nodiscard]] ibv_mr* mr() const { return mr_; }
  [[nodiscard]] std::uint32_t lkey() const { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }
  void deregister();

 private:
  ibv_mr* mr_ = nullptr;
};

// Memory that is registered.
struct Region {
  explicit Region(const Device& device, std::size_t size, int access = kAllAccess)
      : memory(size), registration(device.pd, memory.data(), size, access) {}
  [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<std::uint64_t>(memory.data() + offset), static_cast<std::uint32_t>(size),
            registration.lkey()};
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + offset);
  }

  Memory memory;
  Registration registration;
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;  // or UC
  int send_depth = 128;
  int receive_depth = 128;
  int cq_depth = 512;
  int sges = 4;
  int inline_bytes = 0;
  bool signal_all = false;
  ibv_srq* srq = nullptr;  // where receives come from
  ibv_cq* cq = nullptr;    // where everything completes, the caller's; null: CQs of its own
  bool events = false;     // give the CQs a completion channel
  ibv_mtu mtu = IBV_MTU_1024;
  int access = kAllAccess;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 1;  // 0.01 ms
  std::uint8_t timeout = 14;       // 67 ms
  std::uint8_t rd_atomic = 4;
};

// What the other side must know of a queue pair.
struct QpAddress {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  ibv_gid gid{};
};

// A queue pair with a CQ for each direction.
class End {
 public:
  End(Device& device, const QpOptions& options);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] QpAddress address() const;
  void to_init();
  void to_rtr(const QpAddress& peer);
  void to_rts();
  void connect(const QpAddress& peer);  // all three
  void to_error();
  [[nodiscard]] ibv_qp_state state() const;

  void post_send(ibv_send_wr& request) const;
  void post_receive(std::uint64_t wr_id, std::span<ibv_sge> pieces) const;
  void post_receive(std::uint64_t wr_id, ibv_sge piece) const { post_receive(wr_id, {&piece, 1}); }

  ibv_comp_channel* channel = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_qp* qp = nullptr;

 private:
  Device& device_;
  QpOptions options_;
  std::uint32_t psn_ = 0;
};

// Two queue pairs of one process, connected to one another.
struct Link {
  explicit Link(Device& device, const QpOptions& options = {});
  End a;
  End b;
};

// Waits for one completion, polling; fails after so long.
ibv_wc wait_for(ibv_cq* cq, int limit_ms = kWaitLimitMs);
// The same, and it must be a success.
ibv_wc wait_for_success(ibv_cq* cq, int limit_ms = kWaitLimitMs);
// True if nothing completes for so long.
bool stays_empty(ibv_cq* cq, int milliseconds);
// Waits for an asynchronous event; fails after kWaitLimitMs. Acknowledges it.
ibv_event_type wait_for_async_event(const Device& device);

// A request with its pieces; the flags and the rest are set by the caller.
ibv_send_wr send_request(ibv_wr_opcode opcode, std::uint64_t wr_id, std::span<ibv_sge> pieces,
                         unsigned flags = IBV_SEND_SIGNALED);
ibv_send_wr rdma_request(ibv_wr_opcode opcode, std::uint64_t wr_id, std::span<ibv_sge> pieces,
                         std::uint64_t remote, std::uint32_t rkey, unsigned flags = IBV_SEND_SIGNALED);

}  // namespace urdma::system_test
