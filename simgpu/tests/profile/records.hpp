#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nlohmann/json.hpp>

/// @file
/// What LOCKSTEP_SIM_PROFILE tells, read by a test in the process that writes it.

namespace simgpu::testing {

/// True if the process has that LOCKSTEP_SIM_EXECUTE.
inline bool executes(const std::string& what) {
  return std::getenv("LOCKSTEP_SIM_EXECUTE") == what;
}

/// The records so far; what the devices have to do is done before.
inline std::vector<nlohmann::json> records() {
  int devices = 0, current = 0;
  cudaGetDeviceCount(&devices);
  cudaGetDevice(&current);
  for (int device = 0; device < devices; ++device) {
    cudaSetDevice(device);
    cudaDeviceSynchronize();
  }
  cudaSetDevice(current);
  std::ifstream file(std::getenv("LOCKSTEP_SIM_PROFILE"));
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

/// The newest of a kind; null if there is none.
inline nlohmann::json newest(const std::string& kind) {
  nlohmann::json found;
  for (const nlohmann::json& record : records())
    if (record.value("kind", "") == kind && (found.is_null() || found["id"] < record["id"]))
      found = record;
  return found;
}

}  // namespace simgpu::testing
