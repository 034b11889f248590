#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <lockstep/parallel/bucket_reduction.hpp>

#include "support/command_line.hpp"

/// @file
/// The option --compress.

namespace examples {

/// Adds --compress, how gradients travel between the ranks: none, bf16, fp16 or powersgd:RANK.
void add_compress_option(CLI::App& app, std::string& compress);

/// The communication hook that --compress asks for; null for none. PowerSGD begins after a tenth of
/// the steps.
std::shared_ptr<lockstep::parallel::BucketReduction> comm_hook(const std::string& compress,
                                                               std::int64_t steps);

}  // namespace examples
