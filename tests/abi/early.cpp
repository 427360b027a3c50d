// Preloaded behind the stand-in, so that its constructor comes first: calls that are made then must
// already work.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// What the test reads: bit 0 a file of the tree, bit 1 the device's number, bit 2 an ordinary file.
extern "C" [[gnu::visibility("default")]] int urdma_early_result;
int urdma_early_result = 0;

[[gnu::constructor]] static void call_early() {
  FILE* const stream = fopen("/sys/class/infiniband_verbs/abi_version", "r");
  if (stream != nullptr) {
    urdma_early_result |= fgetc(stream) == '6' ? 1 : 0;
    fclose(stream);
  }
  struct stat status {};
  if (stat("/dev/infiniband/uverbs0", &status) == 0 && status.st_rdev == makedev(231, 192))
    urdma_early_result |= 2;
  const int fd = open("/etc/passwd", O_RDONLY);
  if (fd >= 0) {
    urdma_early_result |= 4;
    close(fd);
  }
}
