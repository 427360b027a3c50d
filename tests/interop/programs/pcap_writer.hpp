// Writes Ethernet frames to a pcap file of microseconds; tests/support/pcap.hpp reads it. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "tests/support/pcap.hpp"

namespace urdma::interop {

class PcapWriter {
 public:
  PcapWriter() = default;
  ~PcapWriter() { close(); }
  PcapWriter(const PcapWriter&) = delete;
  PcapWriter& operator=(const PcapWriter&) = delete;

  // Ends the file before, and begins another one; an empty name begins none. False if it cannot be written.
  bool open(const std::string& path) {
    close();
    if (path.empty()) return true;
    file_ = std::fopen(path.c_str(), "wb");
    if (file_ == nullptr) return false;
    const test::pcap_detail::FileHeader header{test::pcap_detail::kMagic,   2, 4, 0, 0, 262144,
                                               test::pcap_detail::kEthernet};
    return std::fwrite(&header, sizeof(header), 1, file_) == 1;
  }

  void write(std::span<const std::uint8_t> frame) {
    if (file_ == nullptr) return;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    const auto size = static_cast<std::uint32_t>(frame.size());
    const test::pcap_detail::RecordHeader header{static_cast<std::uint32_t>(now / 1'000'000),
                                                 static_cast<std::uint32_t>(now % 1'000'000), size, size};
    std::fwrite(&header, sizeof(header), 1, file_);
    std::fwrite(frame.data(), 1, frame.size(), file_);
  }

 private:
  void close() {
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
  }

  std::FILE* file_ = nullptr;
};

}  // namespace urdma::interop
