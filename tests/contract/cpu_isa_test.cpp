// LOCKSTEP_CPU_ISA holds for all kernels that have a version for each instruction set. A process
// chooses once, so each case asks a child.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "cpu/attention_kernels.hpp"
#include "cpu/bf16_attention.hpp"
#include "cpu/gemm_kernels.hpp"
#include "cpu/loops.hpp"
#include "cpu/tile_registers.hpp"
#include "lockstep/backend/info.hpp"

namespace lockstep {
namespace {

[[noreturn]] void report() {
  std::cerr << cpu_kernels::isa_name() << ": attention " << cpu_kernels::attention_loops().lanes
            << ", products " << cpu_kernels::gemm_kernel<float>().columns << " and "
            << cpu_kernels::gemm_kernel<double>().columns << ", small ones "
            << cpu_kernels::strided_kernels().lanes << ", bf16 attention in "
            << (cpu_kernels::bf16_attention_loops() ? "bf16" : "f32") << ", tiles "
            << (cpu_kernels::has_tile_registers() ? "yes" : "no");
  std::_Exit(0);
}

/// All levels from the one in use down run here.
bool runs_here(const std::string& isa) {
  const auto isas = cpu_kernels::compiled_isas();
  return std::find(std::find(isas.begin(), isas.end(), std::string(cpu_kernels::isa_name())),
                   isas.end(), isa) != isas.end();
}

void expect_report(const std::string& isa, const std::string& report_text) {
  if (!runs_here(isa)) GTEST_SKIP() << "this build or this machine has no " << isa;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("LOCKSTEP_CPU_ISA", isa.c_str(), 1);
  EXPECT_EXIT(report(), ::testing::ExitedWithCode(0), isa + report_text);
}

TEST(CpuIsaDeathTest, BaselineHoldsForTilesOfProductsAndAttention) {
  expect_report("baseline",
                ": attention 4, products 8 and 4, small ones 4, bf16 attention in f32, tiles no");
}
TEST(CpuIsaDeathTest, Avx2HoldsForTilesOfProductsAndAttention) {
  expect_report("avx2",
                ": attention 8, products 16 and 8, small ones 8, bf16 attention in f32, tiles no");
}

std::string avx512_report(bool tiles) {
  const auto has = backend::cpu_instructions().machine;
  const bool bf16 = std::ranges::find(has, "avx512bf16") != has.end();
  return std::string(": attention 16, products 32 and 16, small ones 16, bf16 attention in ") +
         (bf16 ? "bf16" : "f32") + ", tiles " + (tiles ? "yes" : "no");
}

TEST(CpuIsaDeathTest, Avx512HoldsForTilesOfProductsAndAttention) {
  expect_report("avx512", avx512_report(cpu_kernels::has_tile_registers()));
}
TEST(CpuIsaDeathTest, TileRegistersCanBeLeftUnused) {
  setenv("LOCKSTEP_CPU_AMX", "0", 1);
  expect_report("avx512", avx512_report(false));
}

}  // namespace
}  // namespace lockstep
