#include "memory/protection.hpp"

#include <utility>

#include "base/options.hpp"
#include "memory/device_side.hpp"
#include "memory/protection_keys.hpp"
#include "memory/switched_pages.hpp"

namespace simgpu {
namespace {

thread_local bool has_entered = false;
thread_local const DeviceSideScope* scope = nullptr;

bool use_keys() { return host_watch() == HostWatch::keys; }

}  // namespace

HostWatch host_watch() {
  static const HostWatch way = [] {
    const HostWatch wanted = options().host_watch;
    if (wanted != HostWatch::keys || ProtectionKeys::instance().exist()) return wanted;
    return HostWatch::pages;
  }();
  return way;
}

void set_owner(void* pages, std::size_t bytes, Owner owner) {
  switch (host_watch()) {
    case HostWatch::keys: return ProtectionKeys::instance().set_owner(pages, bytes, owner);
    case HostWatch::pages: return SwitchedPages::instance().set_owner(pages, bytes, owner);
    case HostWatch::off: return;
  }
}

void forget_owner(void* pages, std::size_t bytes) {
  if (host_watch() == HostWatch::pages) SwitchedPages::instance().forget(pages, bytes);
}

bool open_to_device(const void* address) {
  return host_watch() == HostWatch::pages && SwitchedPages::instance().open(address, scope);
}

bool on_device_side() { return has_entered || scope != nullptr; }

void enter_device_side() {
  has_entered = true;
  if (use_keys()) write_rights(read_rights() & ~ProtectionKeys::instance().denying_rights());
}

void leave_device_side() {
  has_entered = false;
  if (use_keys()) write_rights(read_rights() | ProtectionKeys::instance().denying_rights());
  rest_device_side();
}

void rest_device_side() {
  if (host_watch() == HostWatch::pages) SwitchedPages::instance().close(nullptr);
}

DeviceSideScope::DeviceSideScope()
    : around_(std::exchange(scope, this)), rights_(use_keys() ? read_rights() : 0) {
  if (use_keys()) write_rights(rights_ & ~ProtectionKeys::instance().denying_rights());
}

DeviceSideScope::~DeviceSideScope() {
  scope = around_;
  if (use_keys()) write_rights(rights_);
  if (host_watch() == HostWatch::pages) SwitchedPages::instance().close(this);
}

}  // namespace simgpu
