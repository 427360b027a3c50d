// Whether a range of the program's memory can be registered.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/page_check.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "provider/memory/vma.hpp"

namespace urdma::provider {

int check_pages_by_maps(std::uintptr_t begin, std::uintptr_t end, bool for_writing) {
  std::uintptr_t covered = begin;  // the mappings are in order: everything below is known to be good
  for (const Vma& vma : mappings_of(begin, end, false)) {
    if (vma.start > covered || !vma.is_readable || (for_writing && !vma.is_writable)) return EFAULT;
    covered = vma.end;
  }
  return covered < end ? EFAULT : 0;
}

int check_pages(std::uintptr_t address, std::size_t length, bool for_writing) {
  if (length == 0) return 0;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t last = address + (length - 1);
  if (last < address || last > UINTPTR_MAX - page) return EINVAL;
  const std::uintptr_t begin = address & ~(page - 1);
  const std::uintptr_t end = (last & ~(page - 1)) + page;
  int result;
  do {
    result = ::madvise(reinterpret_cast<void*>(begin), end - begin,
                       for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  } while (result < 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) return 0;
  // EINVAL stands for a kernel before 5.14, a permission that is missing, and mappings of devices.
  return errno == EINVAL ? check_pages_by_maps(begin, end, for_writing) : EFAULT;
}

}  // namespace urdma::provider
