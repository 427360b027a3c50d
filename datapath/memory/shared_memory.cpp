// Sealed memfds that the daemon shares with its clients.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace urdma::memory {

namespace {

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<SharedMemory> SharedMemory::create(const char* name, std::size_t bytes, ClientAccess access) {
  SharedMemory memory;
  memory.size_ = whole_pages(bytes);
  memory.fd_ = UniqueFd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_.is_open()) return fail_errno(errno, "cannot make shared memory");
  if (::ftruncate(memory.fd_.get(), static_cast<off_t>(memory.size_)) != 0) {
    return fail_errno(errno, "cannot size shared memory");
  }
  void* mapped = ::mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_.get(), 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map shared memory");
  memory.data_ = static_cast<std::byte*>(mapped);
  // A client that could shrink the file could kill the daemon by SIGBUS. The write seal spares the
  // mapping that is already there.
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (access == ClientAccess::kReadOnly) seals |= F_SEAL_FUTURE_WRITE;
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, seals) != 0)
    return fail_errno(errno, "cannot seal shared memory");
  return memory;
}

}  // namespace urdma::memory
