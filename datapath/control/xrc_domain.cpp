// XRC domains (see xrc_domain.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/xrc_domain.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <array>
#include <cerrno>

namespace urdma::control {
namespace {

std::string handle_of(int fd) {
  alignas(file_handle) std::array<char, sizeof(file_handle) + MAX_HANDLE_SZ> space{};
  auto* handle = reinterpret_cast<file_handle*>(space.data());
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  if (::name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) != 0) return {};
  return {reinterpret_cast<const char*>(handle->f_handle), handle->handle_bytes};
}

}  // namespace

Result<FileIdentity> identify_file(int fd) {
  struct statx facts {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &facts) != 0) {
    return fail_errno(errno, "cannot tell which file it is");
  }
  return FileIdentity{::makedev(facts.stx_dev_major, facts.stx_dev_minor), facts.stx_ino, handle_of(fd)};
}

Result<std::shared_ptr<XrcDomain>> XrcDomains::make() {
  // Nobody else has this page: the domain's QPs have no doorbells.
  auto page =
      memory::SharedMemory::create("urdma-xrcd", sizeof(abi::SessionPage), memory::ClientAccess::kReadOnly);
  if (!page) return tl::make_unexpected(page.error());
  page->close_descriptor();
  engine::Session::Config config;
  config.page = std::move(*page);
  config.doorbell_eventfds.fill(-1);
  auto domain = std::make_shared<XrcDomain>();
  domain->id = engine::XrcDomainId{++last_};
  domain->session = std::make_unique<engine::Session>(std::move(config));
  return domain;
}

Result<std::shared_ptr<XrcDomain>> XrcDomains::open(std::uint32_t device,
                                                    const std::optional<FileIdentity>& file, Wish wish) {
  if (!file.has_value()) {
    if (!wish.may_create) return fail(EINVAL, "an XRC domain without a file can only be a new one");
    return make();
  }
  std::erase_if(named_, [](const auto& entry) { return entry.second.expired(); });
  const auto found = named_.find({device, *file});
  if (found != named_.end()) {
    if (wish.must_create) return fail(EINVAL, "the file has an XRC domain already");
    return found->second.lock();
  }
  if (!wish.may_create) return fail(EAGAIN, "the file has no XRC domain yet");
  auto domain = make();
  if (domain) named_.emplace(std::tuple(device, *file), *domain);
  return domain;
}

}  // namespace urdma::control
