// ibv_start_poll and its kin: the functions that an extended CQ points to.
//
// One thread is between start_poll and end_poll of a CQ at a time; the readers are its. None of them throws.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <ctime>

#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;

CompletionQueue& queue_of(ibv_cq_ex* cq) { return *cq_of(ibv_cq_ex_to_cq(cq)).queue; }
const CompletionQueue::Polled& polled(ibv_cq_ex* cq) { return queue_of(cq).polled(); }

int shown(ibv_cq_ex* cq, int error) {
  if (error != 0) return error;
  const ibv_wc& completion = polled(cq).wc;
  cq->status = completion.status;
  cq->wr_id = completion.wr_id;
  return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  return shown(cq, queue_of(cq).start_poll());
}
int next_poll(ibv_cq_ex* cq) { return shown(cq, queue_of(cq).next_poll()); }
void end_poll(ibv_cq_ex* cq) { queue_of(cq).end_poll(); }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return polled(cq).wc.opcode; }
uint32_t read_vendor_err(ibv_cq_ex* cq) { return polled(cq).wc.vendor_err; }
unsigned int read_wc_flags(ibv_cq_ex* cq) { return polled(cq).wc.wc_flags; }
uint32_t read_byte_len(ibv_cq_ex* cq) { return polled(cq).wc.byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) { return polled(cq).wc.imm_data; }
uint32_t read_qp_num(ibv_cq_ex* cq) { return polled(cq).wc.qp_num; }
uint32_t read_src_qp(ibv_cq_ex* cq) { return polled(cq).wc.src_qp; }
uint32_t read_slid(ibv_cq_ex* cq) { return polled(cq).wc.slid; }
uint8_t read_sl(ibv_cq_ex* cq) { return polled(cq).wc.sl; }
uint8_t read_dlid_path_bits(ibv_cq_ex* cq) { return polled(cq).wc.dlid_path_bits; }
uint64_t read_completion_ts(ibv_cq_ex* cq) { return polled(cq).timestamp_ns; }

std::uint64_t nanoseconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kNanosecondsPerSecond +
         static_cast<std::uint64_t>(time.tv_nsec);
}

uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  const std::uint64_t timestamp_ns = polled(cq).timestamp_ns;
  if (timestamp_ns == 0) return 0;
  // How long ago it was, told by the clock that the timestamp is of.
  return nanoseconds_of(CLOCK_REALTIME) - (nanoseconds_of(CLOCK_MONOTONIC) - timestamp_ns);
}

}  // namespace

void install_poll(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_wc_flags = read_wc_flags;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_slid = read_slid;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_dlid_path_bits;
  cq.read_completion_ts = read_completion_ts;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

}  // namespace urdma::provider
