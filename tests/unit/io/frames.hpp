// Ports and frames for the tests of this executable.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <rte_mbuf.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "datapath/io/port.hpp"
#include "tests/unit/io/environment.hpp"

namespace urdma::io {

inline std::unique_ptr<Port> open_port(const std::string& text) {
  auto spec = parse_port_spec(text);
  EXPECT_TRUE(spec) << spec.error().message;
  auto port = Port::open(*spec, EalEnvironment::frames().get());
  EXPECT_TRUE(port) << port.error().message;
  return port ? std::move(*port) : nullptr;
}

inline rte_mbuf* make_frame(std::size_t bytes, std::uint8_t fill) {
  rte_mbuf* frame = rte_pktmbuf_alloc(EalEnvironment::frames().get());
  EXPECT_NE(frame, nullptr);
  std::memset(rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes)), fill, bytes);
  return frame;
}

// An RC SEND with `payload_bytes` of value `fill`.
inline rte_mbuf* make_roce_frame(const wire::FlowTemplate& flow, std::uint32_t payload_bytes,
                                 std::uint8_t fill) {
  wire::Headers headers;
  headers.opcode = wire::Opcode::kRcSendOnly;
  headers.dest_qp = Qpn{0x12};
  headers.payload_bytes = payload_bytes;
  const std::size_t bytes = wire::frame_bytes(flow, headers);
  rte_mbuf* frame = make_frame(bytes, 0);
  auto* data = rte_pktmbuf_mtod(frame, std::uint8_t*);
  const std::size_t offset = wire::write_frame_headers(flow, headers, 0, data);
  std::memset(data + offset, fill, payload_bytes);
  wire::finish_frame({data, bytes});
  return frame;
}

inline std::span<const std::uint8_t> bytes_of(const rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, const std::uint8_t*), frame->data_len};
}

inline bool is_readable(int descriptor, int timeout_ms) {
  pollfd wait = {descriptor, POLLIN, 0};
  return poll(&wait, 1, timeout_ms) == 1 && (wait.revents & POLLIN) != 0;
}

// All frames that arrive until the port has been quiet for `quiet_ms`, or `most` of them. The caller's.
inline std::vector<rte_mbuf*> receive_all(Port& port, std::size_t most, int quiet_ms) {
  std::vector<rte_mbuf*> frames;
  std::array<rte_mbuf*, 32> burst{};
  while (frames.size() < most && is_readable(port.wake_descriptor(), quiet_ms)) {
    const std::uint32_t count = port.receive(burst);
    frames.insert(frames.end(), burst.begin(), burst.begin() + count);
  }
  return frames;
}

inline void release(std::vector<rte_mbuf*>& frames) {
  rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(frames.size()));
  frames.clear();
}

}  // namespace urdma::io
