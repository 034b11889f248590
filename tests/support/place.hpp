#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.hpp"
#include "lockstep/runtime/info.hpp"

/// @file
/// Where the ops of a test run: on each of the CPU backends, and on the GPU.

namespace lockstep::testing {

/// A backend of this build, and its device.
struct Place {
  std::string_view backend;
  Device device = cpu;
};

inline std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << place.backend;
}

/// The GPU, where this build has code for one; whether the machine has one is known when a test
/// runs (`is_missing`).
inline std::vector<Place> gpu_places() {
  if (!backend::cuda()) return {};
  return {{backend::cuda()->name, cuda(0)}};
}

/// Every backend of this build.
inline std::vector<Place> places() {
  std::vector<Place> all;
  for (const auto name : backend::cpu_backends()) all.push_back({name, cpu});
  for (const Place& gpu : gpu_places()) all.push_back(gpu);
  return all;
}

/// True if a test has to skip: its device is not in this machine.
inline bool is_missing(const Place& place) {
  return place.device.is_cuda() && cuda_device_count() == 0;
}

/// Names a parameterised case by its place: "cuda".
inline std::string place_name(const ::testing::TestParamInfo<Place>& info) {
  return std::string(info.param.backend);
}

/// Uses the place's backend for ops on the CPU, where it is one of those, until the end of scope.
class PlaceScope {
 public:
  explicit PlaceScope(const Place& place) : before_(backend::of(cpu).name) {
    if (place.device.is_cpu()) backend::use_cpu_backend(place.backend);
  }
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;
  ~PlaceScope() { backend::use_cpu_backend(before_); }

 private:
  std::string_view before_;
};

/// Base of tests that run on the GPU alone, and skip without one.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
  static constexpr Device device = cuda(0);
};

}  // namespace lockstep::testing
