#include "base/call_site.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/stack_walk.hpp"
#include "base/symbol_table.hpp"
#include "base/symbols.hpp"

namespace simgpu {
namespace {

constexpr std::size_t lines_shown = 9;

std::string hexadecimal(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

bool starts_with_one_of(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes)
    if (text.substr(0, prefix.size()) == prefix) return true;
  return false;
}

bool is_in_one_of(const Symbol& symbol, std::initializer_list<std::string_view> folders) {
  return std::any_of(folders.begin(), folders.end(), [&](std::string_view folder) {
    return symbol.file.find(folder) != std::string::npos;
  });
}

// Named one by one: a checkout may itself lie in a folder called simgpu.
bool is_of_simulation(const Symbol& symbol) {
  return is_in_one_of(
      symbol,
      {"simgpu/src/base/", "simgpu/src/memory/", "simgpu/src/engine/", "simgpu/src/kernels/",
       "simgpu/src/runtime/", "simgpu/src/libraries/", "simgpu/src/cublas/", "simgpu/src/cublaslt/",
       "simgpu/src/cudnn/", "simgpu/src/nccl/", "simgpu/src/profile/", "include/simgpu/",
       "lockstep-simgpu/simgpu/"});
}

// The simulated libraries, and lockstep's own layers that only pass a call on to them.
bool is_plumbing(const Symbol& symbol) {
  if (symbol.function == "lockstep::Tensor::~Tensor") return true;
  if (is_of_simulation(symbol)) return true;
  if (!symbol.file.empty())
    return is_in_one_of(
        symbol,
        {"src/runtime/", "lockstep/runtime/", "src/memory/", "lockstep/memory/",
         "src/tensor/storage.cpp", "lockstep/tensor/storage.hpp", "lockstep/tensor/tensor_impl.hpp",
         "lockstep/core/", "arguments/kernel.hpp", "kernels/cuda/launch.hpp", "include/c++/"});
  return starts_with_one_of(symbol.function, {"simgpu::", "cuda", "nccl", "cublas", "std::"});
}

// A function that only stands between the one around it and the one that it calls.
bool is_lambda(const Symbol& symbol) {
  return starts_with_one_of(symbol.function, {"operator()", "_FUN"});
}

// A place in the program that uses lockstep, rather than in lockstep.
bool is_of_program(const Symbol& symbol) {
  return !symbol.file.empty() &&
         !is_in_one_of(symbol, {"include/lockstep/", "kernels/", "src/", "nptl/", "sysdeps/"});
}

// The frames that say something, innermost first, as far as main.
std::vector<Symbol> telling_frames(const CallSite& site) {
  std::vector<Symbol> telling;
  for (std::size_t i = 1; i < site.count; ++i) {
    // A return address belongs to the line after the call.
    const auto* const call = static_cast<const char*>(site.frames[i]) - 1;
    for (Symbol& symbol : symbols_of(call)) {
      const bool is_between = !telling.empty() && is_lambda(symbol) && !is_of_program(symbol);
      if (is_plumbing(symbol) || is_between) continue;
      telling.push_back(std::move(symbol));
      if (telling.back().function == "main") return telling;
    }
  }
  return telling;
}

// The last three parts of a path say enough.
std::string_view shortened(std::string_view path) {
  std::size_t from = path.size();
  for (int parts = 0; parts < 3 && from != std::string_view::npos && from != 0; ++parts)
    from = path.rfind('/', from - 1);
  return from == std::string_view::npos || from == 0 ? path : path.substr(from + 1);
}

// The arguments of templates fill pages and say little.
std::string without_long_arguments(const std::string& name) {
  constexpr std::size_t long_enough = 80;
  const std::size_t open = name.find('<'), close = name.rfind('>');
  if (name.size() < long_enough || open == std::string::npos || close < open) return name;
  return name.substr(0, open + 1) + "..." + name.substr(close);
}

std::string line_of(const Symbol& symbol) {
  const std::string function = without_long_arguments(symbol.function);
  if (symbol.file.empty()) return function;
  return function + " (" + std::string(shortened(symbol.file)) + ":" + std::to_string(symbol.line) +
         ")";
}

// A function's own name: "sum_kernel<float>" of "app::sum_kernel<float>".
std::string without_namespaces(const std::string& name) {
  const std::size_t end = name.find_first_of("<(");
  const std::size_t at = name.substr(0, end).rfind("::");
  return at == std::string::npos ? name : name.substr(at + 2);
}

}  // namespace

CallSite CallSite::here() {
  CallSite site;
  site.count = walk_stack(site.frames);
  return site;
}

std::string describe(const CallSite& site) {
  const std::vector<Symbol> frames = telling_frames(site);
  if (frames.empty())
    return site.count == 0 ? "an unknown place" : hexadecimal(site.frames[site.count - 1]);
  std::string text;
  const auto add = [&](const Symbol& symbol) {
    text += (text.empty() ? "" : "\n      from ") + line_of(symbol);
  };
  const auto shown =
      frames.begin() + static_cast<std::ptrdiff_t>(std::min(frames.size(), lines_shown));
  std::for_each(frames.begin(), shown, add);
  // Whatever the depth of the library, the program's own line is what its author looks for.
  if (std::none_of(frames.begin(), shown, is_of_program)) {
    const auto program = std::find_if(shown, frames.end(), is_of_program);
    if (program != frames.end()) add(*program);
  }
  return text;
}

bool is_below(const CallSite& site, std::string_view parts, Frames frames) {
  for (std::size_t i = 0; i < site.count; ++i)
    for (const Symbol& symbol : symbols_of(static_cast<const char*>(site.frames[i]) - 1)) {
      if (frames == Frames::shown && is_plumbing(symbol)) continue;
      for (std::size_t from = 0, end = 0; from < parts.size(); from = end + 1) {
        end = std::min(parts.find(';', from), parts.size());
        const std::string_view part = parts.substr(from, end - from);
        if (!part.empty() && symbol.function.find(part) != std::string::npos) return true;
      }
    }
  return false;
}

std::string function_name(const void* function) {
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<const void*, std::string>;
  const std::lock_guard lock(mutex);
  std::string& name = (*known)[function];
  if (!name.empty()) return name;
  // The debug information, which symbols_of reads, takes a tenth of a second at first.
  if (const std::vector<std::string> names = mangled_names(function); !names.empty())
    return name = without_namespaces(readable(names.front().c_str()));
  const std::vector<Symbol> symbols = symbols_of(function);
  return name = symbols.empty() ? hexadecimal(function) : symbols.back().function;
}

}  // namespace simgpu
