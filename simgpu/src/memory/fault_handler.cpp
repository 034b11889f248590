#include "memory/fault_handler.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include <cpuid.h>
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

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

struct sigaction previous_action, previous_action_on_bus_error;
std::atomic<bool> let_through{false};
std::atomic<const KernelFaultHandler*> kernel_faults{nullptr};

/// Of the thread that runs kernels, whose fibers may have no stack left. Reports are made on it.
constexpr std::size_t signal_stack_bytes = 256 * 1024;
std::byte* signal_stack = nullptr;
constinit thread_local bool has_signal_stack = false;
CallSite overflow_site;

/// Where the code of the C library lies.
struct CodeRange {
  std::uintptr_t begin = 0, end = 0;
  bool holds(std::uintptr_t place) const { return place >= begin && place < end; }
};
CodeRange c_library;

CodeRange code_around(const void* function) {
  struct Search {
    std::uintptr_t place;
    CodeRange found;
  } search{reinterpret_cast<std::uintptr_t>(function), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* data) {
        auto& of = *static_cast<Search*>(data);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
          const CodeRange range{begin, begin + part.p_memsz};
          if (part.p_type == PT_LOAD && range.holds(of.place)) of.found = range;
        }
        return 0;
      },
      &search);
  return search.found;
}

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
  const struct sigaction& previous =
      signal == SIGBUS ? previous_action_on_bus_error : previous_action;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction)
    return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
    return previous.sa_handler(signal);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
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

bool runs_kernel() {
  const KernelFaultHandler* const handler = kernel_faults;
  return handler != nullptr && handler->runs_kernel();
}

bool is_below_stack(const void* address) {
  return has_signal_stack && kernel_faults.load()->is_below_stack(address);
}

void end_kernel(const void* address, const void* place, bool writes, const CallSite* overflow) {
  kernel_faults.load()->end(
      {.address = address,
       .place = place,
       .writes = writes,
       .overflow = overflow,
       .in_c_library = c_library.holds(reinterpret_cast<std::uintptr_t>(place))});
}

/// Lets the interrupted kernel call `end_kernel` as the signal ends.
void turn_to_end(const void* address, ucontext_t* context, const CallSite* overflow = nullptr) {
  constexpr greg_t red_zone = 128, page_fault = 14;
  greg_t* const registers = context->uc_mcontext.gregs;
  const greg_t place = registers[REG_RIP] + 1;
  const greg_t free = overflow ? reinterpret_cast<greg_t>(signal_stack + signal_stack_bytes)
                               : registers[REG_RSP] - red_zone;
  auto* const frame = reinterpret_cast<greg_t*>(free & ~greg_t{15}) - 1;
  // The return address, for debuggers. Nothing is left to do on the stack for signals.
  if (!overflow) *frame = place;
  const bool is_known = registers[REG_TRAPNO] == page_fault;
  registers[REG_RDI] = is_known ? reinterpret_cast<greg_t>(address) : 0;
  registers[REG_RSI] = place;
  registers[REG_RDX] = is_known && is_write(context);
  registers[REG_RCX] = reinterpret_cast<greg_t>(overflow);
  registers[REG_RSP] = reinterpret_cast<greg_t>(frame);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&end_kernel);
}

/// Addresses that no memory can have, by some instructions.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  runs_kernel() ? turn_to_end(info->si_addr, static_cast<ucontext_t*>(context))
                : pass_on(signal, info, context);
}

/// A report is being made on a stack that has no room for it.
void tell_of_lost_report() {
  constexpr std::string_view text =
      "simulated GPU: a kernel left too little of its stack to report a finding\n";
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (is_below_stack(info->si_addr)) {
    if (runs_kernel()) {
      overflow_site = CallSite::here();
      return turn_to_end(info->si_addr, static_cast<ucontext_t*>(context), &overflow_site);
    }
    tell_of_lost_report();
    pass_on(signal, info, context);
  } else if (runs_kernel()) {
    if (!open_to_device(info->si_addr))
      turn_to_end(info->si_addr, static_cast<ucontext_t*>(context));
  } else if (!is_tracked(info->si_addr) || host_watch() == HostWatch::off ||
             !handle(info->si_addr, static_cast<ucontext_t*>(context))) {
    pass_on(signal, info, context);
  }
}

void install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction& previous) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  // The handler may fault and report in turn: on the stack that faulted, unless the thread has one
  // for signals.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(signal, &action, &previous);
}

/// To the calling thread, for the life of the process.
void give_signal_stack() {
  void* const memory = mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  signal_stack = static_cast<std::byte*>(memory);
  c_library = code_around(dlsym(RTLD_DEFAULT, "vfprintf"));
  const stack_t stack = {.ss_sp = memory, .ss_flags = 0, .ss_size = signal_stack_bytes};
  sigaltstack(&stack, nullptr);
}

}  // namespace

void install_fault_handler() {
  static std::once_flag once;
  std::call_once(once, [] { install(SIGSEGV, on_fault, previous_action); });
}

void handle_kernel_faults(const KernelFaultHandler& handler) {
  install_fault_handler();
  give_signal_stack();
  kernel_faults = &handler;
  has_signal_stack = true;
  static std::once_flag once;
  std::call_once(once, [] { install(SIGBUS, on_bus_error, previous_action_on_bus_error); });
}

void let_host_accesses_through(bool let) { let_through = let; }

}  // namespace simgpu
