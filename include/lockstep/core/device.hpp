#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

/// @file
/// Where a tensor's memory lives.

namespace lockstep {

/// Kind of processor.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// A processor: its kind and its index among those of the kind.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int16_t index = 0;

  /// The host.
  constexpr Device() = default;
  /// One processor of a kind.
  constexpr Device(DeviceType kind, std::int16_t number = 0) : type(kind), index(number) {}
  /// From "cpu", "cuda" (the first one) or "cuda:1". @throws InvalidArgument for other texts.
  explicit Device(std::string_view text);

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
