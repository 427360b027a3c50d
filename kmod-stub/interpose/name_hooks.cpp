// Functions that yield paths. What leads into the node's tree is told as the path below /sys or /dev that it
// stands for, so that a program sees what it would see with a device of the kernel's.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "interpose/hook.hpp"
#include "interpose/node.hpp"
#include "interpose/raw.hpp"
#include "rdma_cm/channel.hpp"

namespace urdma::stub {
namespace {

// For results that are NUL-terminated and may be null.
char* publish(char* path) {
  if (path != nullptr) path[to_public(path, std::strlen(path))] = '\0';
  return path;
}

// A device has no links on its way, and its name is canonical as it is.
char* canonical_device(const Claim& claim, char* resolved) {
  PathBuffer path;
  path.append("/dev/infiniband/");
  if (claim.kind == ClaimKind::kDevice) path.append("uverbs").append(claim.uverbs);
  if (claim.kind == ClaimKind::kRdmaCm) path.append(kRdmaCm);
  if (!raw::exists(claim.path)) {
    errno = ENOENT;
    return nullptr;
  }
  return resolved == nullptr ? ::strdup(path.c_str()) : std::strcpy(resolved, path.c_str());
}

// `call(path)` of realpath or one of its kin.
template <typename Call>
char* canonical(const char* path, char* resolved, Call call) {
  return route(AT_FDCWD, path, [&](const Claim& claim) {
    if (is_character_device(claim.kind)) return canonical_device(claim, resolved);
    return publish(call(claim.path));
  });
}

// A link's target that leads into the tree may be longer than the caller's buffer, and what the program is to
// see not: the whole of it is read, and as much as fits is handed on.
[[gnu::cold, gnu::noinline]] ssize_t read_whole_link(const Claim& claim, char* text, std::size_t size) {
  char whole[PATH_MAX];
  const long whole_size = raw::call(SYS_readlinkat, claim.directory, claim.path, whole, sizeof(whole));
  if (whole_size < 0) return raw::as_libc(whole_size);
  const std::size_t public_size = to_public(whole, static_cast<std::size_t>(whole_size));
  const std::size_t fitting = public_size < size ? public_size : size;
  std::memcpy(text, whole, fitting);
  return static_cast<ssize_t>(fitting);
}

// Only such a target can lead into the tree: the links below /sys and /dev are relative or the host's own.
bool may_lead_to_tree(const char* text, std::size_t size) {
  const std::string_view node = node_directory();
  return !node.empty() && size != 0 && text[0] == '/';
}

// `call(directory, path)` of readlink or one of its kin.
template <typename Call>
ssize_t hook_readlink(int directory, const char* path, char* text, std::size_t size, Call call) {
  return route(directory, path, [&](const Claim& claim) -> ssize_t {
    if (is_character_device(claim.kind)) {
      errno = EINVAL;
      return -1;
    }
    const ssize_t result = call(claim.directory, claim.path);
    if (result <= 0 || !may_lead_to_tree(text, static_cast<std::size_t>(result))) return result;
    if (static_cast<std::size_t>(result) == size) return read_whole_link(claim, text, size);
    return static_cast<ssize_t>(to_public(text, static_cast<std::size_t>(result)));
  });
}

// Found paths back to what the program asked for.
template <typename Glob>
void publish_all(const Glob& found, int flags) {
  const std::size_t first = (flags & GLOB_DOOFFS) != 0 ? found.gl_offs : 0;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) publish(found.gl_pathv[first + i]);
}

template <typename Function, typename Glob>
int hook_glob(Function& real_glob, const char* pattern, int flags, GlobError* on_error, Glob* found) {
  if (!is_candidate(pattern) || pattern[0] != '/' || (flags & GLOB_ALTDIRFUNC) != 0) [[likely]]
    return real_glob(pattern, flags, on_error, found);
  PathBuffer buffer;
  const Claim claim = resolve_pattern(pattern, buffer);
  const int result = real_glob(claim.path, flags, on_error, found);
  if (result == 0 && claim.kind != ClaimKind::kNone) publish_all(*found, flags);
  return result;
}

}  // namespace

URDMA_HOOK(char*, realpath, const char* path, char* resolved) {
  return canonical(path, resolved, [&](const char* where) { return real::realpath(where, resolved); });
}

URDMA_HOOK(char*, __realpath_chk, const char* path, char* resolved, std::size_t size) {
  return canonical(path, resolved,
                   [&](const char* where) { return real::__realpath_chk(where, resolved, size); });
}

URDMA_HOOK(char*, canonicalize_file_name, const char* path) {
  return canonical(path, nullptr, [&](const char* where) { return real::canonicalize_file_name(where); });
}

URDMA_HOOK(ssize_t, readlink, const char* path, char* text, std::size_t size) {
  return hook_readlink(AT_FDCWD, path, text, size,
                       [&](int, const char* where) { return real::readlink(where, text, size); });
}

URDMA_HOOK(ssize_t, __readlink_chk, const char* path, char* text, std::size_t size, std::size_t room) {
  return hook_readlink(AT_FDCWD, path, text, size,
                       [&](int, const char* where) { return real::__readlink_chk(where, text, size, room); });
}

URDMA_HOOK(ssize_t, readlinkat, int directory, const char* path, char* text, std::size_t size) {
  return hook_readlink(directory, path, text, size,
                       [&](int at, const char* where) { return real::readlinkat(at, where, text, size); });
}

URDMA_HOOK(ssize_t, __readlinkat_chk, int directory, const char* path, char* text, std::size_t size,
           std::size_t room) {
  return hook_readlink(directory, path, text, size, [&](int at, const char* where) {
    return real::__readlinkat_chk(at, where, text, size, room);
  });
}

URDMA_HOOK(char*, getcwd, char* text, std::size_t size) { return publish(real::getcwd(text, size)); }
URDMA_HOOK(char*, __getcwd_chk, char* text, std::size_t size, std::size_t room) {
  return publish(real::__getcwd_chk(text, size, room));
}
URDMA_HOOK(char*, get_current_dir_name, void) { return publish(real::get_current_dir_name()); }

URDMA_HOOK(int, glob, const char* pattern, int flags, GlobError* on_error, glob_t* found) {
  return hook_glob(real::glob, pattern, flags, on_error, found);
}

URDMA_HOOK(int, glob64, const char* pattern, int flags, GlobError* on_error, glob64_t* found) {
  return hook_glob(real::glob64, pattern, flags, on_error, found);
}

}  // namespace urdma::stub
