#include "memory/protection_keys.hpp"

#include <array>

#include <sys/mman.h>

namespace simgpu {

unsigned read_rights() {
  unsigned low = 0, high = 0;
  __asm__ volatile(".byte 0x0f,0x01,0xee" : "=a"(low), "=d"(high) : "c"(0));  // rdpkru
  return low;
}

void write_rights(unsigned rights) {
  __asm__ volatile(".byte 0x0f,0x01,0xef" : : "a"(rights), "c"(0), "d"(0) : "memory");  // wrpkru
}

ProtectionKeys::ProtectionKeys() {
  device_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  queued_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (exist()) return;
  if (device_ >= 0) pkey_free(device_);
  device_ = queued_ = -1;
}

const ProtectionKeys& ProtectionKeys::instance() {
  static const ProtectionKeys keys;
  return keys;
}

unsigned ProtectionKeys::denying_rights() const {
  return 3U << (2 * device_) | 3U << (2 * queued_);
}

void ProtectionKeys::set_owner(void* pages, std::size_t bytes, Owner owner) const {
  const std::array key{0, device_, queued_};
  pkey_mprotect(pages, bytes, PROT_READ | PROT_WRITE, key[static_cast<std::size_t>(owner)]);
}

}  // namespace simgpu
