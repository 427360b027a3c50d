// The header of management datagrams. See urdma/wire/mad.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/mad.hpp"

namespace urdma::wire {

std::optional<CmHeader> parse_cm_header(std::span<const std::uint8_t> mad) {
  if (mad.size() != kMadBytes) return std::nullopt;
  const auto& header = overlay<MadWire>(mad.data());
  if (header.base_version != kMadBaseVersion || header.management_class != kCommunicationClass ||
      header.class_version != kCommunicationClassVersion || header.method != kMadMethodSend)
    return std::nullopt;
  const std::uint16_t attribute = header.attribute_id.get();
  constexpr auto kFirst = static_cast<std::uint16_t>(CmAttribute::kReq);
  constexpr auto kLast = static_cast<std::uint16_t>(CmAttribute::kSidrRep);
  if (attribute < kFirst || attribute > kLast) return std::nullopt;
  return CmHeader{static_cast<CmAttribute>(attribute), header.transaction_id.get()};
}

MadWire make_cm_header(const CmHeader& header) {
  MadWire wire{};
  wire.base_version = kMadBaseVersion;
  wire.management_class = kCommunicationClass;
  wire.class_version = kCommunicationClassVersion;
  wire.method = kMadMethodSend;
  wire.transaction_id = header.transaction_id;
  wire.attribute_id = static_cast<std::uint16_t>(header.attribute);
  return wire;
}

}  // namespace urdma::wire
