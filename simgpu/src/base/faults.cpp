#include "base/faults.hpp"

#include <cstdlib>
#include <stdexcept>

#include "base/options.hpp"

namespace simgpu {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return parts;
}

[[noreturn]] void refuse_fault(std::string_view text) {
  throw std::invalid_argument(
      "the fault \"" + std::string(text) +
      "\" means nothing: wanted are FUNCTION:NTH:CODE, out-of-memory:BYTES, stall-stream:NUMBER, "
      "hang-collective:NTH or sticky-error:NTH:CODE, separated by semicolons");
}

std::uint64_t fault_number(const std::string& part, std::string_view fault) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(part.c_str(), &end, 10);
  if (part.empty() || *end != '\0' || part[0] == '-') refuse_fault(fault);
  return value;
}

}  // namespace

Faults::Fault Faults::parse(std::string_view text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) refuse_fault(text);
  Fault fault{.kind = Kind::call, .function = parts[0], .number = fault_number(parts[1], text)};
  if (parts[0] == "out-of-memory") fault.kind = Kind::memory;
  if (parts[0] == "stall-stream") fault.kind = Kind::stall;
  if (parts[0] == "hang-collective") fault.kind = Kind::collective;
  if (parts[0] == "sticky-error") fault.kind = Kind::launch;
  const bool has_code = fault.kind == Kind::call || fault.kind == Kind::launch;
  if (has_code != (parts.size() == 3)) refuse_fault(text);
  if (has_code) fault.code = static_cast<int>(fault_number(parts[2], text));
  return fault;
}

void Faults::add(std::string_view text) {
  for (const std::string& part : split(text, ';')) {
    const Fault fault = parse(part);
    const std::lock_guard lock(mutex_);
    faults_.push_back(fault);
    any_ = true;
  }
}

void Faults::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  any_ = false;
}

std::optional<int> Faults::on_call(const char* function) {
  if (!any_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::optional<int> code;
  for (Fault& fault : faults_)
    if (fault.kind == Kind::call && fault.function == function && ++fault.seen == fault.number)
      code = fault.code;
  return code;
}

bool Faults::out_of_memory(std::size_t bytes) const {
  if (!any_) return false;
  const std::lock_guard lock(mutex_);
  for (const Fault& fault : faults_)
    if (fault.kind == Kind::memory && bytes > fault.number) return true;
  return false;
}

bool Faults::stalled(unsigned stream) const {
  if (!any_) return false;
  const std::lock_guard lock(mutex_);
  for (const Fault& fault : faults_)
    if (fault.kind == Kind::stall && fault.number == stream) return true;
  return false;
}

bool Faults::collective_hangs() {
  if (!any_) return false;
  const std::lock_guard lock(mutex_);
  bool hangs = false;
  for (Fault& fault : faults_)
    if (fault.kind == Kind::collective && ++fault.seen == fault.number) hangs = true;
  return hangs;
}

std::optional<int> Faults::on_launch() {
  if (!any_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::optional<int> code;
  for (Fault& fault : faults_)
    if (fault.kind == Kind::launch && ++fault.seen == fault.number) code = fault.code;
  return code;
}

Faults& faults() {
  static Faults* const all = [] {
    auto* const created = new Faults;
    created->add(options().faults);
    return created;
  }();
  return *all;
}

}  // namespace simgpu
