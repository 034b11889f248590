#include "memory/fault_handler.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#include "base/call_site.hpp"
#include "base/options.hpp"
#include "base/report.hpp"
#include "memory/address_space.hpp"
#include "memory/device_side.hpp"
#include "memory/pinned_fault.hpp"
#include "memory/protection.hpp"
#include "memory/protection_keys.hpp"

namespace simgpu {
namespace {

struct sigaction previous_action;
std::atomic<bool> let_through{false};

/// The register of rights of the interrupted code, in the frame that the signal's end restores.
class InterruptedRights {
 public:
  explicit InterruptedRights(ucontext_t* context)
      : at_(reinterpret_cast<std::byte*>(context->uc_mcontext.fpregs) + offset()) {}

  unsigned get() const {
    unsigned rights = 0;
    std::memcpy(&rights, at_, sizeof rights);
    return rights;
  }
  void set(unsigned rights) { std::memcpy(at_, &rights, sizeof rights); }

 private:
  /// Where the saved state of the processor holds the rights: state component 9.
  static unsigned offset() {
    static const unsigned found = [] {
      unsigned size = 0, begin = 0, c = 0, d = 0;
      __cpuid_count(0xD, 9, size, begin, c, d);
      return begin;
    }();
    return found;
  }
  std::byte* at_;
};

bool is_write(const ucontext_t* context) {
  constexpr greg_t write_bit = 2;
  return (context->uc_mcontext.gregs[REG_ERR] & write_bit) != 0;
}

/// As if the simulated GPU had no handler: the previous one, or the end of the process as the
/// instruction faults again.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction)
    return previous_action.sa_sigaction(signal, info, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    return previous_action.sa_handler(signal);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGSEGV, &standard, nullptr);
}

std::string host_text(const char* verb, const void* address) {
  return std::string("the host ") + verb + " " + describe_address(address) + "\n  at " +
         describe(CallSite::here());
}

/// With keys, the handler of a signal has rights of its own, whatever the interrupted code had.
bool was_on_device_side(ucontext_t* context) {
  if (host_watch() != HostWatch::keys) return on_device_side();
  return (InterruptedRights(context).get() & ProtectionKeys::instance().denying_rights()) == 0;
}

void give_rights_of_device(ucontext_t* context) {
  if (host_watch() != HostWatch::keys) return enter_device_side();
  InterruptedRights rights(context);
  rights.set(rights.get() & ~ProtectionKeys::instance().denying_rights());
}

/// @return true if the access may go on.
bool handle(const void* address, ucontext_t* context) {
  const char* verb = is_write(context) ? "writes" : "reads";
  if (was_on_device_side(context)) {
    if (open_to_device(address)) return true;
    report(Finding::out_of_bounds, std::string("a device operation ") + verb +
                                       " memory that does not exist: " + describe_address(address));
    return false;
  }
  const std::optional<Block> block = block_of(address);
  if (block && block->kind == MemoryKind::pinned) {
    open_after_fault(address, is_write(context));
    return true;
  }
  report(Finding::host_access,
         host_text(verb, address) + "\n  device memory is not the host's: copy it with cudaMemcpy");
  if (!let_through || !block) return false;
  give_rights_of_device(context);
  return true;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (!is_tracked(info->si_addr) || host_watch() == HostWatch::off ||
      !handle(info->si_addr, static_cast<ucontext_t*>(context)))
    pass_on(signal, info, context);
}

}  // namespace

void install_fault_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    // The handler may fault and report in turn, on whatever stack faulted.
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_action);
  });
}

void let_host_accesses_through(bool let) { let_through = let; }

}  // namespace simgpu
