//! The code that `service!` generates for one method, by its kind: in the traits, in the registry, in the clients.

/// A method of the async trait, as the attribute `async_trait` would generate it.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_trait_method {
    (Unary [$($doc:tt)*] $method:ident [$marker:ty] $stream:ident $about:expr) => {
        $($doc)*
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            request: $crate::Request<<$marker as $crate::Method>::Request>,
        ) -> ::core::pin::Pin<::std::boxed::Box<
            dyn ::core::future::Future<
                Output = Result<$crate::Response<<$marker as $crate::Method>::Response>, $crate::Status>,
            > + Send + 'async_trait,
        >>
        where
            'life0: 'async_trait,
            Self: 'async_trait;
    };
    (ServerStreaming [$($doc:tt)*] $method:ident [$marker:ty] $stream:ident $about:expr) => {
        #[doc = $about]
        type $stream: $crate::private::Stream<
            Item = Result<<$marker as $crate::Method>::Response, $crate::Status>,
        > + Send + 'static;

        $($doc)*
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            request: $crate::Request<<$marker as $crate::Method>::Request>,
        ) -> ::core::pin::Pin<::std::boxed::Box<
            dyn ::core::future::Future<Output = Result<$crate::Response<Self::$stream>, $crate::Status>>
                + Send + 'async_trait,
        >>
        where
            'life0: 'async_trait,
            Self: 'async_trait;
    };
    (ClientStreaming [$($doc:tt)*] $method:ident [$marker:ty] $stream:ident $about:expr) => {
        $($doc)*
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            request: $crate::Request<$crate::Streaming<<$marker as $crate::Method>::Request>>,
        ) -> ::core::pin::Pin<::std::boxed::Box<
            dyn ::core::future::Future<
                Output = Result<$crate::Response<<$marker as $crate::Method>::Response>, $crate::Status>,
            > + Send + 'async_trait,
        >>
        where
            'life0: 'async_trait,
            Self: 'async_trait;
    };
    (Bidirectional [$($doc:tt)*] $method:ident [$marker:ty] $stream:ident $about:expr) => {
        #[doc = $about]
        type $stream: $crate::private::Stream<
            Item = Result<<$marker as $crate::Method>::Response, $crate::Status>,
        > + Send + 'static;

        $($doc)*
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            request: $crate::Request<$crate::Streaming<<$marker as $crate::Method>::Request>>,
        ) -> ::core::pin::Pin<::std::boxed::Box<
            dyn ::core::future::Future<Output = Result<$crate::Response<Self::$stream>, $crate::Status>>
                + Send + 'async_trait,
        >>
        where
            'life0: 'async_trait,
            Self: 'async_trait;
    };
}

/// A method of the sync trait.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_sync_method {
    (Unary [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status that the caller receives instead of the reply.
        fn $method(
            &self,
            request: &mut $crate::Request<<$marker as $crate::Method>::Request>,
            reply: &mut $crate::Response<<$marker as $crate::Method>::Response>,
        ) -> Result<(), $crate::Status>;
    };
    ($kind:ident $($rest:tt)*) => {};
}

/// A method of the view trait, whose messages are lent.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_view_method {
    (Unary [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status that the caller receives instead of the reply.
        fn $method(
            &self,
            request: $crate::RequestView<'_, $marker>,
            reply: $crate::Reply<'_, $marker>,
        ) -> Result<$crate::Sent, $crate::Status>;
    };
    ($kind:ident $($rest:tt)*) => {};
}

/// Adds a method to a registry.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_register {
    (Unary $registry:ident $service:expr, $trait:ident $method:ident [$marker:ty]) => {
        let service = Arc::clone(&$service);
        $registry.unary::<$marker, _>(move |request| {
            let service = Arc::clone(&service);
            async move { $trait::$method(&*service, request).await }
        });
    };
    (ServerStreaming $registry:ident $service:expr, $trait:ident $method:ident [$marker:ty]) => {
        let service = Arc::clone(&$service);
        $registry.server_streaming::<$marker, _, _>(move |request| {
            let service = Arc::clone(&service);
            async move { $trait::$method(&*service, request).await }
        });
    };
    (ClientStreaming $registry:ident $service:expr, $trait:ident $method:ident [$marker:ty]) => {
        let service = Arc::clone(&$service);
        $registry.client_streaming::<$marker, _>(move |request| {
            let service = Arc::clone(&service);
            async move { $trait::$method(&*service, request).await }
        });
    };
    (Bidirectional $registry:ident $service:expr, $trait:ident $method:ident [$marker:ty]) => {
        let service = Arc::clone(&$service);
        $registry.bidirectional::<$marker, _, _>(move |request| {
            let service = Arc::clone(&service);
            async move { $trait::$method(&*service, request).await }
        });
    };
}

/// Adds a method whose handler is not a future to a registry.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_register_lent {
    (Unary $registry:ident.$add:ident ($service:expr, $place:expr) $trait:ident $method:ident [$marker:ty]) => {
        let service = Arc::clone(&$service);
        $registry.$add::<$marker>($place, move |request, reply| {
            $trait::$method(&*service, request, reply)
        });
    };
    ($kind:ident $($rest:tt)*) => {};
}

/// A method of the async client.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_client_method {
    (Unary [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status with which the call ended.
        pub async fn $method(
            &self,
            request: impl $crate::IntoRequest<<$marker as $crate::Method>::Request>,
        ) -> Result<$crate::Response<<$marker as $crate::Method>::Response>, $crate::Status> {
            self.channel.unary::<$marker>(&self.routes, request.into_request()).await
        }
    };
    (ServerStreaming [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status with which the call ended before its first message; later ones come from the stream.
        pub async fn $method(
            &self,
            request: impl $crate::IntoRequest<<$marker as $crate::Method>::Request>,
        ) -> Result<
            $crate::Response<$crate::Streaming<<$marker as $crate::Method>::Response>>,
            $crate::Status,
        > {
            self.channel.server_streaming::<$marker>(&self.routes, request.into_request()).await
        }
    };
    (ClientStreaming [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status with which the call ended.
        pub async fn $method(
            &self,
            request: impl $crate::IntoStreamingRequest<Message = <$marker as $crate::Method>::Request>,
        ) -> Result<$crate::Response<<$marker as $crate::Method>::Response>, $crate::Status> {
            let request = request.into_streaming_request();
            self.channel.client_streaming::<$marker, _>(&self.routes, request).await
        }
    };
    (Bidirectional [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status with which the call ended before its first message; later ones come from the stream.
        pub async fn $method(
            &self,
            request: impl $crate::IntoStreamingRequest<Message = <$marker as $crate::Method>::Request>,
        ) -> Result<
            $crate::Response<$crate::Streaming<<$marker as $crate::Method>::Response>>,
            $crate::Status,
        > {
            let request = request.into_streaming_request();
            self.channel.bidirectional::<$marker, _>(&self.routes, request).await
        }
    };
}

/// A method of the client of one thread: the same as in the async client, for unary methods only.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_local_method {
    (Unary $($rest:tt)*) => { $crate::__service_client_method! { Unary $($rest)* } };
    ($kind:ident $($rest:tt)*) => {};
}

/// A method of the blocking client.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_blocking_method {
    (Unary [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status with which the call ended.
        pub fn $method(
            &self,
            request: impl $crate::IntoRequest<<$marker as $crate::Method>::Request>,
        ) -> Result<$crate::Response<<$marker as $crate::Method>::Response>, $crate::Status> {
            self.channel.unary_blocking::<$marker>(&self.routes, request.into_request())
        }
    };
    (ServerStreaming [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// # Errors
        /// The status with which the call ended before its first message; later ones come from the stream.
        pub fn $method(
            &self,
            request: impl $crate::IntoRequest<<$marker as $crate::Method>::Request>,
        ) -> Result<
            $crate::Response<$crate::BlockingStreaming<<$marker as $crate::Method>::Response>>,
            $crate::Status,
        > {
            let request = request.into_request();
            let call = self.channel.server_streaming::<$marker>(&self.routes, request);
            Ok($crate::private::block_on(call)?.map($crate::Streaming::blocking))
        }
    };
    (ClientStreaming [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// The messages are read by a dedicated thread, so the iterator may block.
        ///
        /// # Errors
        /// The status with which the call ended.
        pub fn $method<I>(
            &self,
            messages: I,
        ) -> Result<$crate::Response<<$marker as $crate::Method>::Response>, $crate::Status>
        where
            I: IntoIterator<Item = <$marker as $crate::Method>::Request>,
            I::IntoIter: Send + 'static,
        {
            let request = $crate::Request::new(self.channel.feed(messages.into_iter())?);
            $crate::private::block_on(self.channel.client_streaming::<$marker, _>(&self.routes, request))
        }
    };
    (Bidirectional [$($doc:tt)*] $method:ident [$marker:ty]) => {
        $($doc)*
        ///
        /// The messages are read by a dedicated thread, so the iterator may block.
        ///
        /// # Errors
        /// The status with which the call ended before its first message; later ones come from the stream.
        pub fn $method<I>(
            &self,
            messages: I,
        ) -> Result<
            $crate::Response<$crate::BlockingStreaming<<$marker as $crate::Method>::Response>>,
            $crate::Status,
        >
        where
            I: IntoIterator<Item = <$marker as $crate::Method>::Request>,
            I::IntoIter: Send + 'static,
        {
            let request = $crate::Request::new(self.channel.feed(messages.into_iter())?);
            let call = self.channel.bidirectional::<$marker, _>(&self.routes, request);
            Ok($crate::private::block_on(call)?.map($crate::Streaming::blocking))
        }
    };
}
