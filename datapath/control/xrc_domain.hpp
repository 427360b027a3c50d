// XRC domains: what joins the XRC receive QPs and XRC SRQs of several processes (IBTA 1, annex A14). Those
// that name the same file on the same device have the same domain; without a file it is its maker's alone.
// Owner: the objects in it, by shared pointers; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "datapath/engine/session.hpp"
#include "datapath/engine/shared_receive_queue.hpp"
#include "urdma/base/result.hpp"

namespace urdma::control {

struct QpEntry;

struct XrcDomain {
  engine::XrcDomainId id;
  // What its receive QPs hold of the engine's pools counts here: they outlive the session that made them.
  std::unique_ptr<engine::Session> session;
  std::unordered_map<std::uint32_t, std::weak_ptr<QpEntry>> qps;  // by number
};

// A file as the kernel tells one from another. A file system gives the inode number of one that is gone to
// the next that is made, and only its handles then say that they are two.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string handle;  // empty where the file system has none
  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};
// Asks for nothing that a file system could take its time to answer.
[[nodiscard]] Result<FileIdentity> identify_file(int fd);

class XrcDomains {
 public:
  // As open() has them.
  struct Wish {
    bool may_create = false;
    bool must_create = false;
  };
  // EAGAIN: there is none, and none is to be made; EINVAL: there is one.
  [[nodiscard]] Result<std::shared_ptr<XrcDomain>> open(std::uint32_t device,
                                                        const std::optional<FileIdentity>& file, Wish wish);

 private:
  [[nodiscard]] Result<std::shared_ptr<XrcDomain>> make();

  std::map<std::tuple<std::uint32_t, FileIdentity>, std::weak_ptr<XrcDomain>> named_;
  std::uint32_t last_ = 0;
};

}  // namespace urdma::control
