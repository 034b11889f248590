#pragma once

#include <cuda.h>

/// @file
/// The driver's functions that the CUDA runtime does not have. libcuda is not linked: a program
/// starts where there is none, and asks the runtime for them.

namespace lockstep {

/// Virtual memory of devices, since CUDA 10.2.
struct DriverFunctions {
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetAttribute) device_attribute;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_addresses;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
};

/// Null where the driver lacks one of them.
const DriverFunctions* driver_functions();

}  // namespace lockstep
