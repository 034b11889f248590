#pragma once

/// @file
/// Standard input, output and error.

namespace lockstep {

/// Opens /dev/null in the place of those that are closed: else the next file that is opened, such
/// as a lock or a socket, gets their number, and with it what the program prints.
void open_closed_standard_streams() noexcept;

}  // namespace lockstep
