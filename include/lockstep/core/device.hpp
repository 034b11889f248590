#pragma once

#include <cstdint>
#include <ostream>

/// @file
/// Where a tensor's memory lives.

namespace lockstep {

/// Kind of processor.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// A processor: its kind and its index among those of the kind.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int16_t index = 0;

  /// True for the host processor.
  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  /// True for a CUDA GPU, real or simulated.
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// The host.
inline constexpr Device cpu{};
/// The CUDA device with the given index.
constexpr Device cuda(int index) { return {DeviceType::cuda, static_cast<std::int16_t>(index)}; }

/// Writes "cpu" or "cuda:0".
inline std::ostream& operator<<(std::ostream& out, Device device) {
  return device.is_cpu() ? out << "cpu" : out << "cuda:" << device.index;
}

}  // namespace lockstep
