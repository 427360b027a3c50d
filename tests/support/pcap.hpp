// A reader of pcap files for tests: little-endian, whole frames of Ethernet, all in memory.
// It is not a library: a file that it does not understand ends the test with std::runtime_error.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace urdma::test {

using Frame = std::vector<std::uint8_t>;

namespace pcap_detail {

struct FileHeader {
  std::uint32_t magic;
  std::uint16_t version_major;
  std::uint16_t version_minor;
  std::uint32_t zone;
  std::uint32_t accuracy;
  std::uint32_t snap_bytes;
  std::uint32_t link_type;
};
static_assert(sizeof(FileHeader) == 24);

struct RecordHeader {
  std::uint32_t seconds;
  std::uint32_t microseconds;
  std::uint32_t captured_bytes;
  std::uint32_t frame_bytes;
};
static_assert(sizeof(RecordHeader) == 16);

inline constexpr std::uint32_t kMagic = 0xA1B2C3D4;
inline constexpr std::uint32_t kEthernet = 1;

template <typename Header>
Header take(const Frame& bytes, std::size_t& offset) {
  if (sizeof(Header) > bytes.size() - offset) throw std::runtime_error("pcap: the file ends in a header");
  Header header;
  std::memcpy(&header, bytes.data() + offset, sizeof(header));
  offset += sizeof(header);
  return header;
}

inline Frame read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("pcap: cannot open " + path);
  return Frame(std::istreambuf_iterator<char>(file), {});
}

}  // namespace pcap_detail

// All frames of the file, in its order.
inline std::vector<Frame> read_pcap(const std::string& path) {
  namespace detail = pcap_detail;
  const Frame bytes = detail::read_file(path);
  std::size_t offset = 0;
  const auto file = detail::take<detail::FileHeader>(bytes, offset);
  if (file.magic != detail::kMagic || file.link_type != detail::kEthernet) {
    throw std::runtime_error("pcap: not a little-endian Ethernet capture: " + path);
  }
  std::vector<Frame> frames;
  while (offset < bytes.size()) {
    const auto record = detail::take<detail::RecordHeader>(bytes, offset);
    if (record.captured_bytes != record.frame_bytes || record.captured_bytes > bytes.size() - offset) {
      throw std::runtime_error("pcap: a frame is not whole in " + path);
    }
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    frames.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(record.captured_bytes));
    offset += record.captured_bytes;
  }
  return frames;
}

}  // namespace urdma::test
