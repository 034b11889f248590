#include "planted/switch.hpp"

#include <atomic>
#include <string>

namespace planted {
namespace {

std::string& planted_fault() {
  static std::string name;
  return name;
}

std::atomic<bool> is_held_back{false};

}  // namespace

void plant(std::string_view fault) { planted_fault() = fault; }

bool is_planted(std::string_view fault) noexcept {
  return !is_held_back && planted_fault() == fault;
}

void hold_back(bool hold) noexcept { is_held_back = hold; }

}  // namespace planted
