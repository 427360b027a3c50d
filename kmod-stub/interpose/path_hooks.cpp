// Functions that take a path and open nothing that matters later: directories, links, permissions, watches.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>

#include "interpose/hook.hpp"

namespace urdma::stub {

URDMA_HOOK(DIR*, opendir, const char* path) {
  return route(AT_FDCWD, path, [](const Claim& claim) { return real::opendir(claim.path); });
}

URDMA_HOOK(int, scandir, const char* path, dirent*** names, ScanFilter* filter, ScanOrder* order) {
  return route(AT_FDCWD, path,
               [&](const Claim& claim) { return real::scandir(claim.path, names, filter, order); });
}

URDMA_HOOK(int, scandir64, const char* path, dirent64*** names, ScanFilter64* filter, ScanOrder64* order) {
  return route(AT_FDCWD, path,
               [&](const Claim& claim) { return real::scandir64(claim.path, names, filter, order); });
}

URDMA_HOOK(int, scandirat, int directory, const char* path, dirent*** names, ScanFilter* filter,
           ScanOrder* order) {
  return route(directory, path, [&](const Claim& claim) {
    return real::scandirat(claim.directory, claim.path, names, filter, order);
  });
}

URDMA_HOOK(int, scandirat64, int directory, const char* path, dirent64*** names, ScanFilter64* filter,
           ScanOrder64* order) {
  return route(directory, path, [&](const Claim& claim) {
    return real::scandirat64(claim.directory, claim.path, names, filter, order);
  });
}

URDMA_HOOK(int, chdir, const char* path) {
  return route(AT_FDCWD, path, [](const Claim& claim) { return real::chdir(claim.path); });
}

URDMA_HOOK(int, access, const char* path, int mode) {
  return route(AT_FDCWD, path, [&](const Claim& claim) { return real::access(claim.path, mode); });
}

URDMA_HOOK(int, eaccess, const char* path, int mode) {
  return route(AT_FDCWD, path, [&](const Claim& claim) { return real::eaccess(claim.path, mode); });
}

URDMA_HOOK(int, euidaccess, const char* path, int mode) {
  return route(AT_FDCWD, path, [&](const Claim& claim) { return real::euidaccess(claim.path, mode); });
}

URDMA_HOOK(int, faccessat, int directory, const char* path, int mode, int flags) {
  return route(directory, path,
               [&](const Claim& claim) { return real::faccessat(claim.directory, claim.path, mode, flags); });
}

URDMA_HOOK(int, inotify_add_watch, int fd, const char* path, std::uint32_t mask) {
  return route(AT_FDCWD, path,
               [&](const Claim& claim) { return real::inotify_add_watch(fd, claim.path, mask); });
}

// `ls -l` asks for these, and complains of files that are not there.
URDMA_HOOK(ssize_t, getxattr, const char* path, const char* name, void* value, std::size_t size) {
  return route(AT_FDCWD, path,
               [&](const Claim& claim) { return real::getxattr(claim.path, name, value, size); });
}

URDMA_HOOK(ssize_t, lgetxattr, const char* path, const char* name, void* value, std::size_t size) {
  return route(AT_FDCWD, path,
               [&](const Claim& claim) { return real::lgetxattr(claim.path, name, value, size); });
}

URDMA_HOOK(ssize_t, listxattr, const char* path, char* names, std::size_t size) {
  return route(AT_FDCWD, path, [&](const Claim& claim) { return real::listxattr(claim.path, names, size); });
}

URDMA_HOOK(ssize_t, llistxattr, const char* path, char* names, std::size_t size) {
  return route(AT_FDCWD, path, [&](const Claim& claim) { return real::llistxattr(claim.path, names, size); });
}

}  // namespace urdma::stub
