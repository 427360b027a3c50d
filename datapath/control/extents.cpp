// Extents, and the requests about them (abi/control.hpp: ConvertBegin and its kin). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/extents.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <memory>

#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {

namespace {

constexpr std::uint64_t kPageBytes = 4096;

Status check_range(std::uint64_t address, std::uint64_t length, const Limits& limits) {
  const bool is_whole = address % kPageBytes == 0 && length % kPageBytes == 0 && length != 0;
  if (!is_whole || length > UINT64_MAX - address) return fail(EINVAL, "an extent is of whole pages");
  if (length > limits.max_converted_bytes_of_session) return fail(ENOMEM, "an extent is too long");
  return {};
}

Result<ExtentTable::Mapped> map_pages(int file, std::uint64_t bytes, std::uint64_t offset) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map pages of the client");
  ::madvise(mapped, bytes, MADV_DONTDUMP);
  return ExtentTable::Mapped{static_cast<std::byte*>(mapped), bytes};
}

}  // namespace

ExtentTable::~ExtentTable() {
  for (auto& [id, entry] : entries_) ::munmap(entry.extent.data, entry.mapped_bytes);
}

Status ExtentTable::check_room(std::uint64_t mapped_bytes, const Limits& limits) const {
  const std::uint64_t most_bytes = limits.max_converted_bytes_of_session;
  const bool has_bytes = mapped_bytes <= most_bytes && total_bytes_ <= most_bytes - mapped_bytes;
  if (has_bytes && entries_.size() < limits.max_extents_of_session) return {};
  return fail(ENOMEM, "the client has as much memory mapped as it may");
}

Status ExtentTable::check_making(const Limits& limits) const {
  if (in_making_ < limits.max_extents_in_making_of_session) return {};
  return fail(ENOMEM, "the client has too many extents in the making");
}

ExtentTable::Entry* ExtentTable::add(Entry entry) {
  entry.extent.id = ++last_id_;
  total_bytes_ += entry.mapped_bytes;
  return &entries_.emplace(last_id_, std::move(entry)).first->second;
}

Result<ExtentTable::Entry*> ExtentTable::make(std::uint64_t address, std::uint64_t length,
                                              const Limits& limits) {
  if (auto good = check_range(address, length, limits); !good) return tl::make_unexpected(good.error());
  if (auto good = check_room(length, limits); !good) return tl::make_unexpected(good.error());
  if (auto good = check_making(limits); !good) return tl::make_unexpected(good.error());
  UniqueFd file(::memfd_create("urdma-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return fail_errno(errno, "cannot make a file for pages of the client");
  if (::ftruncate(file.get(), static_cast<off_t>(length)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return fail_errno(errno, "cannot size a file for pages of the client");
  }
  auto mapped = map_pages(file.get(), length, 0);
  if (!mapped) return tl::make_unexpected(mapped.error());
  Entry entry;
  entry.extent.address = address;
  entry.extent.length = entry.mapped_bytes = length;
  entry.extent.data = mapped->data;
  entry.file = std::move(file);
  ++in_making_;
  return add(std::move(entry));
}

ExtentTable::Entry* ExtentTable::find(std::uint32_t id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

UniqueFd ExtentTable::begin_seal(Entry& entry) {
  entry.is_sealing = true;
  return std::move(entry.file);
}

Status ExtentTable::seal(UniqueFd file) {
  // Without this the client could punch holes, whose refilling would be charged to the daemon.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) return {};
  return fail_errno(errno, "cannot seal pages of the client");
}

void ExtentTable::end_seal(Entry& entry) {
  entry.is_sealing = false;
  --in_making_;
}

Status ExtentTable::begin_take_over(std::uint64_t address, std::uint64_t length, const Limits& limits) {
  if (auto good = check_range(address, length, limits); !good) return good;
  if (auto good = check_room(length, limits); !good) return good;
  if (auto good = check_making(limits); !good) return good;
  ++in_making_;
  return {};
}

Result<ExtentTable::Mapped> ExtentTable::map_file(UniqueFd file, std::uint64_t length, std::uint64_t offset) {
  struct statfs system {};
  struct stat status {};
  const bool is_known = ::fstatfs(file.get(), &system) == 0 && ::fstat(file.get(), &status) == 0;
  if (!is_known || (system.f_type != TMPFS_MAGIC && system.f_type != HUGETLBFS_MAGIC)) {
    return fail(EINVAL, "only memory of shmem or hugetlbfs can be mapped");
  }
  // Huge pages are mapped, and can be unmapped, as a whole only.
  const std::uint64_t block =
      system.f_type == HUGETLBFS_MAGIC ? static_cast<std::uint64_t>(system.f_bsize) : kPageBytes;
  const std::uint64_t bytes = (length + block - 1) / block * block;
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  const bool is_inside = bytes <= file_bytes && offset <= file_bytes - bytes;
  if (offset % kPageBytes != 0 || !is_inside) return fail(EINVAL, "the mapping goes beyond its file");
  return map_pages(file.get(), bytes, offset);
}

Result<ExtentTable::Entry*> ExtentTable::take_over(const Result<Mapped>& mapped, std::uint64_t address,
                                                   std::uint64_t length, const Limits& limits) {
  --in_making_;
  if (!mapped) return tl::make_unexpected(mapped.error());
  if (auto good = check_room(mapped->bytes, limits); !good) {
    ::munmap(mapped->data, mapped->bytes);
    return tl::make_unexpected(good.error());
  }
  Entry entry;
  entry.extent.address = address;
  entry.extent.length = length;
  entry.extent.data = mapped->data;
  entry.mapped_bytes = mapped->bytes;
  return add(std::move(entry));
}

void ExtentTable::erase(std::uint32_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  const Entry& entry = found->second;
  ::munmap(entry.extent.data, entry.mapped_bytes);
  total_bytes_ -= entry.mapped_bytes;
  if (entry.file.is_open() || entry.is_sealing) --in_making_;
  entries_.erase(found);
}

namespace {

Status check_extent_share(const Node& node, const ClientSession& session) {
  return check_share(node, session.peer.uid, "mappings of memory", &Holdings::extents,
                     node.limits.max_extents);
}

// From now on the engine reaches these pages by their mapping.
Status publish(Node& node, ClientProcess& process, ExtentTable::Entry& entry) {
  bool added = false;
  node.engine.run([&] { added = process.space->add_extent(entry.extent); });
  if (!added) return fail(EEXIST, "these pages are mapped already");
  entry.is_published = true;
  return {};
}

void withdraw(Node& node, ClientProcess& process, ExtentTable::Entry& entry) {
  if (!entry.is_published) return;
  node.engine.run([&] { process.space->remove_extent(entry.extent.id); });
  entry.is_published = false;
}

}  // namespace

Outcome convert_begin(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::ConvertBegin>();
  if (!node.converts) return fail(EOPNOTSUPP, "conversion is off on this node");
  if (auto good = check_extent_share(node, session); !good) return tl::make_unexpected(good.error());
  auto made = session.process->extents.make(wanted.address, wanted.length, node.limits);
  if (!made) return tl::make_unexpected(made.error());
  Outcome outcome = reply_with(abi::Handle{(*made)->extent.id, 0});
  (*outcome)->fds.push_back((*made)->file.get());
  return outcome;
}

Outcome convert_done(Node& node, ClientSession& session, Request& request) {
  const auto done = request.as<abi::ConvertDone>();
  ExtentTable::Entry* entry = session.process->extents.find(done.extent);
  if (entry == nullptr || !entry->file.is_open()) {
    return fail(EINVAL, "there is no such extent in the making");
  }
  if (done.converted == 0) {
    session.process->extents.erase(done.extent);
    return empty_reply();
  }
  auto file = std::make_shared<UniqueFd>(session.process->extents.begin_seal(*entry));
  auto sealed = std::make_shared<Status>();
  run_by_copier(
      node, session, [file, sealed] { *sealed = ExtentTable::seal(std::move(*file)); },
      [&node, process = session.process, to = request.to, sealed, id = done.extent] {
        ExtentTable::Entry* whole = process->extents.find(id);
        process->extents.end_seal(*whole);
        const Status outcome = *sealed ? publish(node, *process, *whole) : *sealed;
        if (outcome) return node.sender.reply(to, empty_reply());
        process->extents.erase(id);
        node.sender.reply(to, tl::make_unexpected(outcome.error()));
      });
  return reply_later();
}

Outcome revert(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t id = request.as<abi::Revert>().extent;
  ExtentTable::Entry* entry = session.process->extents.find(id);
  if (entry == nullptr) return fail(EINVAL, "there is no such extent");
  if (entry->is_sealing) return fail(EBUSY, "the extent is not whole yet");
  withdraw(node, *session.process, *entry);
  session.process->extents.erase(id);
  return empty_reply();
}

Outcome share_mapping(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::ShareMapping>();
  if (!node.converts) return fail(EOPNOTSUPP, "mapping of memory is off on this node");
  if (request.fds.empty()) return fail(EINVAL, "the file of the mapping is missing");
  if (auto room = check_extent_share(node, session); !room) return tl::make_unexpected(room.error());
  const auto good = session.process->extents.begin_take_over(wanted.address, wanted.length, node.limits);
  if (!good) return tl::make_unexpected(good.error());
  auto file = std::make_shared<UniqueFd>(std::move(request.fds[0]));
  auto mapped = std::make_shared<Result<ExtentTable::Mapped>>();
  run_by_copier(
      node, session,
      [file, mapped, wanted] {
        *mapped = ExtentTable::map_file(std::move(*file), wanted.length, wanted.offset);
      },
      [&node, process = session.process, to = request.to, mapped, wanted] {
        auto taken = process->extents.take_over(*mapped, wanted.address, wanted.length, node.limits);
        if (!taken) return node.sender.reply(to, tl::make_unexpected(taken.error()));
        const std::uint32_t id = (*taken)->extent.id;
        const Status published = publish(node, *process, **taken);
        if (published) return node.sender.reply(to, reply_with(abi::Handle{id, 0}));
        process->extents.erase(id);
        node.sender.reply(to, tl::make_unexpected(published.error()));
      });
  return reply_later();
}

}  // namespace urdma::control
