#include "memory/protection.hpp"

#include <array>

#include <sys/mman.h>

#include "memory/device_side.hpp"

namespace simgpu {
namespace {

#if defined(__x86_64__)
unsigned read_rights() {
  unsigned low = 0, high = 0;
  __asm__ volatile(".byte 0x0f,0x01,0xee" : "=a"(low), "=d"(high) : "c"(0));  // rdpkru
  return low;
}
void write_rights(unsigned rights) {
  __asm__ volatile(".byte 0x0f,0x01,0xef" : : "a"(rights), "c"(0), "d"(0) : "memory");  // wrpkru
}
#else
unsigned read_rights() { return 0; }
void write_rights(unsigned) {}
#endif

struct Keys {
  int device = -1;
  int queued = -1;

  Keys() {
#if defined(__x86_64__)
    device = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    queued = pkey_alloc(0, PKEY_DISABLE_ACCESS);
#endif
    if (exist()) return;
    if (device >= 0) pkey_free(device);
    device = queued = -1;
  }
  bool exist() const { return device >= 0 && queued >= 0; }
};

const Keys& keys() {
  static const Keys keys;
  return keys;
}

}  // namespace

bool host_accesses_are_caught() { return keys().exist(); }

unsigned denying_rights() {
  if (!keys().exist()) return 0;
  return 3U << (2 * keys().device) | 3U << (2 * keys().queued);
}

void set_owner(void* pages, std::size_t bytes, Owner owner) {
  if (!keys().exist()) return;
  const std::array key{0, keys().device, keys().queued};
  pkey_mprotect(pages, bytes, PROT_READ | PROT_WRITE, key[static_cast<std::size_t>(owner)]);
}

bool on_device_side() { return !keys().exist() || (read_rights() & denying_rights()) == 0; }

void enter_device_side() {
  if (keys().exist()) write_rights(read_rights() & ~denying_rights());
}

void leave_device_side() {
  if (keys().exist()) write_rights(read_rights() | denying_rights());
}

DeviceSideScope::DeviceSideScope() : previous_(keys().exist() ? read_rights() : 0) {
  enter_device_side();
}

DeviceSideScope::~DeviceSideScope() {
  if (keys().exist()) write_rights(previous_);
}

}  // namespace simgpu
