# Raspberry Pi Zero and 1 (ARM1176: ARMv6KZ, which has byte and 64-bit atomics). Debian's armhf
# runtime is ARMv7 code, so this uses the armel one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv6)
set(CMAKE_CXX_COMPILER arm-linux-gnueabi-g++)
set(CMAKE_CXX_FLAGS_INIT "-march=armv6kz -mfpu=vfp -mfloat-abi=softfp -marm")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-arm-static -cpu arm1176)
