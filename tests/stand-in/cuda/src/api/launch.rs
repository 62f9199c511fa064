//! Modules, functions and launches.

use crate::entry::{Call, Needs, enter, put};
use crate::kernels::{KERNELS, Launch, inspect};
use crate::settings::settings;
use crate::status::{self, Status};
use crate::stream::Plan;
use crate::world::{Module, lock};
use std::ffi::{CStr, c_char, c_int, c_void};

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: *mut u64, image: *const c_void) -> Status {
    enter("cuModuleLoadData", Needs::Context, |call| {
        if image.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let image = inspect(image.cast(), settings().capability)?;
        let handle = call.new_handle();
        put(module, handle)?;
        let context = call.context;
        call.modules.insert(handle, Module { context, image, queued: 0 });
        Ok(())
    })
}

fn known(call: &mut Call, module: u64) -> Result<&mut Module, Status> {
    if !call.modules.contains_key(&module) {
        let name = call.name;
        return Err(call.bad_handle(name, module));
    }
    call.modules.get_mut(&module).ok_or(status::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: u64) -> Status {
    enter("cuModuleUnload", Needs::Context, |call| {
        if known(call, module)?.queued > 0 {
            call.violate("cuModuleUnload of a module whose kernels are still queued".to_owned());
        }
        call.modules.remove(&module);
        call.bury(module, "module");
        let functions: Vec<_> = call.functions.extract_if(|_, (own, _)| *own == module).collect();
        for (function, _) in functions {
            call.bury(function, "function");
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) -> Status {
    enter("cuModuleGetFunction", Needs::Context, |call| {
        if name.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: the caller of the driver's function guarantees that the string is valid.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let image = &known(call, module)?.image;
        let is_in_image = image.windows(name.len().max(1)).any(|part| part == name);
        let kernel = KERNELS.iter().position(|kernel| kernel.name.as_bytes() == name);
        let kernel = kernel.filter(|_| is_in_image).ok_or(status::NOT_FOUND)?;
        let handle = call.new_handle();
        put(function, handle)?;
        call.functions.insert(handle, (module, kernel));
        Ok(())
    })
}

fn kernel(call: &mut Call, function: u64) -> Result<(u64, usize), Status> {
    let found = call.functions.get(&function).copied();
    let name = call.name;
    found.ok_or_else(|| call.bad_handle(name, function))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: u64) -> Status {
    enter("cuFuncGetAttribute", Needs::Context, |call| {
        kernel(call, function)?;
        let answer = match attribute {
            // MAX_THREADS_PER_BLOCK
            0 => 1024,
            // SHARED_SIZE_BYTES, CONST_SIZE_BYTES, LOCAL_SIZE_BYTES
            1..=3 => 0,
            // NUM_REGS, PTX_VERSION, BINARY_VERSION, MAX_DYNAMIC_SHARED_SIZE_BYTES
            4 => 32,
            5 | 6 => settings().capability.0 * 10 + settings().capability.1,
            8 => STATIC_LIMIT as c_int,
            _ => return Err(status::INVALID_VALUE),
        };
        put(value, answer)
    })
}

/// The dynamic shared memory of a block that needs no opt-in.
const STATIC_LIMIT: u32 = 48 << 10;

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: u64, attribute: c_int, value: c_int) -> Status {
    enter("cuFuncSetAttribute", Needs::Context, |call| {
        let found = kernel(call, function)?;
        match attribute {
            // MAX_DYNAMIC_SHARED_SIZE_BYTES
            8 if (0..=96 << 10).contains(&value) => {
                call.shared_limits.insert(found, value as u32);
                Ok(())
            }
            _ => Err(status::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetParamInfo(
    function: u64,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Status {
    enter("cuFuncGetParamInfo", Needs::Context, |call| {
        let (_, found) = kernel(call, function)?;
        let sizes = (KERNELS[found].parameters)();
        let own = *sizes.get(index).ok_or(status::INVALID_VALUE)?;
        // Each parameter is aligned to its own size, at most to 8.
        let place = |end: usize, size: usize| end.next_multiple_of(size.min(8)) + size;
        put(offset, sizes[..=index].iter().fold(0, |end, size| place(end, *size)) - own)?;
        if size.is_null() { Ok(()) } else { put(size, own) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: u64,
    parameters: *const *const u8,
    extra: *const *const c_void,
) -> Status {
    enter("cuLaunchKernel", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let found = kernel(call, function)?;
        let (module, number) = found;
        let kernel = &KERNELS[number];
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let threads = block.iter().map(|side| u64::from(*side)).product::<u64>();
        let limit = call.shared_limits.get(&found).copied().unwrap_or(STATIC_LIMIT);
        let fits = !grid.contains(&0)
            && grid_x <= i32::MAX as u32
            && grid_y <= 65535
            && grid_z <= 65535
            && (1..=1024).contains(&threads)
            && block_z <= 64
            && shared <= limit
            && !parameters.is_null()
            && extra.is_null();
        if !fits {
            return Err(status::INVALID_VALUE);
        }
        let sizes = (kernel.parameters)();
        let arguments = sizes.iter().enumerate().map(|(index, size)| {
            // SAFETY: the caller guarantees as many pointers as the kernel has parameters, each to that many bytes.
            unsafe { std::slice::from_raw_parts(*parameters.add(index), *size) }.to_vec()
        });
        let launch = Launch { name: kernel.name, grid, block, shared, arguments: arguments.collect() };
        call.count("launches", 1);
        known(call, module)?.queued += 1;
        call.queue(actor, kernel.name, Plan::default(), move |running| {
            let problem = (kernel.run)(&launch, running);
            let mut world = lock();
            if let Err(problem) = problem {
                world.violate(format!("{}: {problem}", running.mark.operation.text));
            }
            if let Some(module) = world.modules.get_mut(&module) {
                module.queued -= 1;
            }
        });
        Ok(())
    })
}
